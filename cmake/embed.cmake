# Writes texts as a C source that defines `const struct gpu_sources gpu_sources` (src/cuda/gpu_driver.h).
#
#   cmake -DROOT=src -DOUT=gpu_sources.c -P embed.cmake FILE...     files relative to ROOT
#
# Bytes go in as numbers: string literals have a length that compilers need not go beyond.
set(names "")
set(texts "")
set(definitions "")
set(n 0)
math(EXPR last "${CMAKE_ARGC} - 1")
set(is_file FALSE)
foreach(i RANGE ${last})
    if(is_file)
        set(file "${CMAKE_ARGV${i}}")
        file(READ "${ROOT}/${file}" hex HEX)
        string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
        string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
        string(APPEND definitions "static const char text${n}[] = {\n${bytes}0};\n")
        string(APPEND names "    \"${file}\",\n")
        string(APPEND texts "    text${n},\n")
        math(EXPR n "${n} + 1")
    elseif("${CMAKE_ARGV${i}}" MATCHES "embed.cmake$")
        set(is_file TRUE)
    endif()
endforeach()
file(WRITE "${OUT}" "/* Made by cmake/embed.cmake. */
#include \"cuda/gpu_driver.h\"

${definitions}
static const char *const names[] = {
${names}    0};
static const char *const texts[] = {
${texts}    0};
extern const struct gpu_sources gpu_sources;
__attribute__((visibility(\"default\"))) const struct gpu_sources gpu_sources = {names, texts, ${n}};
")
