"""Encodes and decodes a model's weights from memory to memory with ZipNN or OpenZL, and times it.

usage: bench_rivals.py CODEC NTHREADS NRUNS WEIGHTS SHAPES   (as bench_memory.c, same output)
"""

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np


class ZipNN:
    """Its settings for BF16, with a number of threads."""

    def __init__(self, nthreads: int):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import zipnn
        self.codec = zipnn.ZipNN(bytearray_dtype="bfloat16", threads=nthreads)

    def prepare(self, weights: np.ndarray):
        return weights.tobytes()

    def encode(self, data):
        return self.codec.compress(data)

    def decode(self, coded):
        return self.codec.decompress(coded)


class OpenZL:
    """Sign and mantissa stored, exponents by Huffman: its own node for BF16, and of its entropy
    coders the faster one. Checksums are off, as they are for the others."""

    def __init__(self, nthreads: int):
        import openzl.ext as zl

        if nthreads != 1:
            raise SystemExit("OpenZL's Python binding has no threads")
        self.zl = zl
        self.compressor = zl.Compressor()
        self.compressor.set_parameter(zl.CParam.FormatVersion, zl.MAX_FORMAT_VERSION)
        off = 2
        self.compressor.set_parameter(zl.CParam.CompressedChecksum, off)
        self.compressor.set_parameter(zl.CParam.ContentChecksum, off)
        graph = zl.nodes.BFloat16Deconstruct()(
            self.compressor,
            zl.graphs.Store()(self.compressor),
            zl.graphs.Huffman()(self.compressor),
        )
        self.compressor.select_starting_graph(graph)

    def prepare(self, weights: np.ndarray):
        return [self.zl.Input(self.zl.Type.Numeric, weights)]

    def encode(self, data):
        context = self.zl.CCtx()
        context.ref_compressor(self.compressor)
        return context.compress(data)

    def decode(self, coded):
        return self.zl.DCtx().decompress(coded)[0].content.as_nparray()


def main() -> None:
    name, nthreads, nruns, weights_path, shapes_path = sys.argv[1:]
    codec = {"zipnn": ZipNN, "openzl": OpenZL}[name](int(nthreads))
    weights = np.fromfile(weights_path, dtype=np.uint16)
    shapes = [line.split() for line in Path(shapes_path).read_text().splitlines()]
    ends = np.cumsum([int(rows) * int(cols) for rows, cols in shapes])
    tensors = np.split(weights, ends[:-1])
    inputs = [codec.prepare(np.ascontiguousarray(tensor)) for tensor in tensors]
    encode, decode = [], []
    for run in range(int(nruns) + 1):
        coded = restored = None  # their memory serves this run
        started = time.perf_counter()
        coded = [codec.encode(data) for data in inputs]
        middle = time.perf_counter()
        restored = [codec.decode(data) for data in coded]
        ended = time.perf_counter()
        if run == 0:
            for tensor, data in zip(tensors, restored, strict=True):
                if bytes(data) != tensor.tobytes():
                    raise SystemExit(f"{name} did not restore a tensor")
            continue
        encode.append(middle - started)
        decode.append(ended - middle)
    report = {"codec": name, "encode": encode, "decode": decode, "nbytes": weights.nbytes}
    print(json.dumps({**report, "coded_nbytes": sum(len(data) for data in coded)}))


if __name__ == "__main__":
    main()
