; What stands behind each kernel's module (air.py): bfloat as patterns of 16 bits, and calls of the
; runtime, which takes pointers where a vector would need an ABI of its own. FUSED becomes true or
; false, as products and sums are rounded together or not.

define internal float @emulated.widen(i16 %a) alwaysinline {
  %wide = zext i16 %a to i32
  %bits = shl i32 %wide, 16
  %out = bitcast i32 %bits to float
  ret float %out
}
define internal <4 x float> @emulated.widen4(<4 x i16> %a) alwaysinline {
  %wide = zext <4 x i16> %a to <4 x i32>
  %bits = shl <4 x i32> %wide, <i32 16, i32 16, i32 16, i32 16>
  %out = bitcast <4 x i32> %bits to <4 x float>
  ret <4 x float> %out
}
define internal i16 @emulated.round(float %x) alwaysinline {
  %w = bitcast float %x to i32
  %h = lshr i32 %w, 16
  %odd = and i32 %h, 1
  %bias = add i32 %odd, 32767
  %sum = add i32 %w, %bias
  %top = lshr i32 %sum, 16
  %nan = fcmp uno float %x, 0.0
  %chosen = select i1 %nan, i32 32704, i32 %top
  %out = trunc i32 %chosen to i16
  ret i16 %out
}
define internal i16 @emulated.fmul(i16 %a, i16 %b) alwaysinline {
  %x = call float @emulated.widen(i16 %a)
  %y = call float @emulated.widen(i16 %b)
  %product = fmul float %x, %y
  %out = call i16 @emulated.round(float %product)
  ret i16 %out
}
define internal i16 @emulated.fmuladd(i16 %a, i16 %b, i16 %c) alwaysinline {
  %x = call float @emulated.widen(i16 %a)
  %y = call float @emulated.widen(i16 %b)
  %z = call float @emulated.widen(i16 %c)
  %sum = call float @llvm.fmuladd.f32(float %x, float %y, float %z)
  %out = call i16 @emulated.round(float %sum)
  ret i16 %out
}
define internal float @emulated.dot4(<4 x float> %a, <4 x float> %b) alwaysinline {
  %pa = alloca <4 x float>
  %pb = alloca <4 x float>
  store <4 x float> %a, ptr %pa
  store <4 x float> %b, ptr %pb
  %out = call float @emulated_air_dot4(ptr %pa, ptr %pb, i1 zeroext FUSED)
  ret float %out
}
define internal <64 x float> @emulated.step(<64 x float> %a, <64 x float> %b, <64 x float> %c)
    alwaysinline convergent {
  %pa = alloca <2 x float>
  %pb = alloca <2 x float>
  %pc = alloca <2 x float>
  %pd = alloca <2 x float>
  %a2 = shufflevector <64 x float> %a, <64 x float> poison, <2 x i32> <i32 0, i32 1>
  %b2 = shufflevector <64 x float> %b, <64 x float> poison, <2 x i32> <i32 0, i32 1>
  %c2 = shufflevector <64 x float> %c, <64 x float> poison, <2 x i32> <i32 0, i32 1>
  store <2 x float> %a2, ptr %pa
  store <2 x float> %b2, ptr %pb
  store <2 x float> %c2, ptr %pc
  call void @emulated_air_matrix_step(ptr %pd, ptr %pa, ptr %pb, ptr %pc, i1 zeroext FUSED) convergent
  %d2 = load <2 x float>, ptr %pd
  %x = extractelement <2 x float> %d2, i32 0
  %y = extractelement <2 x float> %d2, i32 1
  %first = insertelement <64 x float> undef, float %x, i32 0
  %d = insertelement <64 x float> %first, float %y, i32 1
  ret <64 x float> %d
}
declare float @emulated_air_dot4(ptr, ptr, i1 zeroext)
declare void @emulated_air_matrix_step(ptr, ptr, ptr, ptr, i1 zeroext) convergent
declare float @llvm.fmuladd.f32(float, float, float)
