"""What a C++ compiler cannot take of a Metal source, rewritten on a copy.

Attributes go, after what they say of a kernel's parameters and of function constants was noted;
threadgroup variables become references to memory that a threadgroup shares. Lines keep their
numbers.
"""

import dataclasses
import re

STANDARD = ("maybe_unused", "nodiscard", "fallthrough", "clang::", "gnu::")
ATTRIBUTE = re.compile(r"\[\[((?:[^\[\]]|\[[^\[\]]*\])*?)\]\]")
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
CONSTANT = re.compile(
    r"\bconstant\s+([\w:]+)\s+(\w+)\s*\[\[\s*function_constant\((\d+)\)\s*\]\]\s*;"
)
KERNEL = re.compile(r"(?:\[\[\s*kernel\b(?:[^\[\]])*\]\]\s*void|\bkernel\s+void)\s+(\w+)\s*\(")
SHARED = re.compile(
    r"\bthreadgroup\s+((?:typename\s+)?\w[\w:]*(?:\s*<[^;=(){}]*>)?)\s+(\w+)\s*((?:\[[^\];]*\]\s*)*);"
)
INSTANCE = re.compile(
    r'\btemplate\s*\[\[\s*host_name\("([^"]+)"\)\s*\]\]\s*(?:\[\[\s*kernel\s*\]\]|kernel)\s*'
    r"decltype\((\w+(?:<[^;]*?>)?)\)\s*[^;]*;"
)


@dataclasses.dataclass
class Prepared:
    text: str
    parameters: dict  # of each kernel: the text between the parentheses
    constants: list  # (index, name)
    instances: list  # (name, expression)


def blank(match):
    """The ends of its lines, and nothing else."""
    return "".join(re.findall(r"\\?\n", match.group()))


def without_comments(text):
    return COMMENT.sub(lambda m: m.group() if m.group()[0] == '"' else " " + blank(m), text)


def closing(text, start):
    """Where the parenthesis that opens before `start` closes."""
    depth = 1
    for i in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i
    raise ValueError("a kernel's parameters do not end")


def split(text):
    """At commas outside all brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += {"(": 1, "[": 1, "<": 1, "{": 1, ")": -1, "]": -1, ">": -1, "}": -1}.get(c, 0)
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]] if text[start:].strip() else parts


def parameter_kind(name, text):
    """What the launch gives this parameter."""
    words = [w.strip() for a in ATTRIBUTE.findall(text) for w in split(a)]
    for word in words:
        numbered = re.fullmatch(r"(buffer|threadgroup)\((\d+)\)", word)
        if numbered:
            return numbered[1].upper(), int(numbered[2])
        if re.fullmatch(r"\w+_(in|per)_\w+", word):
            return word.upper(), 0
    raise ValueError(f"kernel {name}: a parameter without an attribute: {text.strip()}")


def shared(match):
    kind, name, extents = match.groups()
    return (
        f"using {name}_memory = {kind}{extents.strip()}; {name}_memory &{name} = "
        f"*static_cast<{name}_memory *>(emulator::threadgroup_memory(__COUNTER__, "
        f"sizeof({name}_memory)));" + blank(match)
    )


def strip_attribute(match):
    return match.group() if match[1].strip().startswith(STANDARD) else blank(match)


def prepare(text, path):
    text = without_comments(text)
    parameters, instances = {}, INSTANCE.findall(text)
    text = INSTANCE.sub(blank, text)
    for found in KERNEL.finditer(text):
        parameters[found[1]] = text[found.end() : closing(text, found.end())]
    constants = [(int(index), name) for _, name, index in CONSTANT.findall(text)]
    text = SHARED.sub(shared, ATTRIBUTE.sub(strip_attribute, text))
    return Prepared(f'# 1 "{path}"\n{text}', parameters, constants, instances)
