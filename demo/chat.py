"""Asks the original model and the packed one the same, and compares every number of the answers.

usage: chat.py ORIGINAL PACKED [TOKENS]

Both answer greedily in mlx-lm, the original in BF16. A token or one bit of a log-probability that
differs ends the program with an error. The speeds are of one run; ./run bench cpu measures well.
"""

import sys
import time

import mlx.core as mx
from binade.mlx import r4
from binade.mlx.loader import load_reference
from mlx_lm.generate import generate_step

QUESTION = "Why is the sky blue during the day and red in the evening?"
NTOKENS = 120
NTOKENS_WARM = 4


class Answer:
    """Tokens, the log-probabilities [token, vocabulary] that they were chosen by, and times."""

    def __init__(self, model, prompt: list[int], ntokens: int, eos: set[int]):
        self.tokens: list[int] = []
        rows, started = [], time.perf_counter()
        for token, logprobs in generate_step(mx.array(prompt), model, max_tokens=ntokens):
            if not rows:
                self.prompt_seconds = time.perf_counter() - started
            self.tokens.append(token)
            rows.append(logprobs)
            if token in eos:
                break
        self.seconds = time.perf_counter() - started - self.prompt_seconds
        self.logprobs = mx.stack(rows)

    def speeds(self, nprompt: int) -> str:
        prompt, answer = nprompt / self.prompt_seconds, (len(self.tokens) - 1) / self.seconds
        return f"prompt {prompt:.0f} tokens/s, answer {answer:.1f} tokens/s"


def load_timed(load, path: str):
    started = time.perf_counter()
    model, tokenizer = load(path)[:2]
    mx.eval(model.parameters())
    return model, tokenizer, time.perf_counter() - started


def compare(original: Answer, packed: Answer) -> None:
    for i, (a, b) in enumerate(zip(original.tokens, packed.tokens, strict=False)):
        if a != b:
            raise SystemExit(f"token {i} is {b} from the packed model, {a} from the original")
    if len(original.tokens) != len(packed.tokens):
        raise SystemExit(f"{len(packed.tokens)} tokens, not {len(original.tokens)}")
    bits = [answer.logprobs.view(mx.uint16) for answer in (original, packed)]
    wrong = mx.any(bits[0] != bits[1], axis=1).tolist()
    if any(wrong):
        raise SystemExit(f"the log-probabilities of token {wrong.index(True)} differ")


def main() -> None:
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    ntokens = int(sys.argv[3]) if len(sys.argv) == 4 else NTOKENS
    mx.set_default_device(mx.cpu)
    answers = []
    for name, load, path in zip(
        ("original, BF16", "packed"), (load_reference, r4.load), sys.argv[1:3], strict=True
    ):
        model, tokenizer, seconds = load_timed(load, path)
        messages = [{"role": "user", "content": QUESTION}]
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        Answer(model, prompt[:NTOKENS_WARM], NTOKENS_WARM, set())
        answer = Answer(model, prompt, ntokens, set(tokenizer.eos_token_ids))
        if not answers:
            print(f"\n> {QUESTION}")
        answers.append(answer)
        text = tokenizer.decode(answer.tokens, skip_special_tokens=True).strip()
        print(f"\n{name}: loaded in {seconds:.2f} s, {answer.speeds(len(prompt))}")
        print(text, flush=True)
        del model
        mx.clear_cache()
    compare(*answers)
    count = answers[0].logprobs.size
    print(f"\n{len(answers[0].tokens)} tokens and their log-probabilities are identical", end=" ")
    print(f"({count:,} numbers, every bit)")


if __name__ == "__main__":
    main()
