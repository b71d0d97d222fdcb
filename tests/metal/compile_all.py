"""Fetches MLX's wheel and compiles what most tests need, on all cores."""

import concurrent.futures
import os

import air
import compiling
import oracle

VARIANTS = [(True, False), (False, False), (True, True)]


def main():
    compiling.build_runtime()
    compiling.headers()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [
            pool.submit(compiling.compile_source, source, *variant)
            for source in oracle.sources().values()
            for variant in VARIANTS
        ]
        jobs += [
            pool.submit(air.compile_air, n, f) for n in oracle.sources() for f in (True, False)
        ]
        for job in jobs:
            job.result()


if __name__ == "__main__":
    main()
