# PyTorch's symmetric memory as one PE of a benchmark: questions on standard input, answers on the standard output that
# this process was started with, each a line of JSON. It ends when its standard input does.
import json
import os
import queue
import sys
import threading
import time
from datetime import timedelta

answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # What libraries print is no answer.
questions = queue.Queue()


def listen():
    for line in sys.stdin:
        questions.put(json.loads(line))
    os._exit(0)  # Whatever the GPU is at.


threading.Thread(target=listen, daemon=True).start()
# NCCL, whose process group is never used for a call, needs no watching.
os.environ.setdefault("TORCH_NCCL_ENABLE_MONITORING", "0")

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
CHUNK = 1 << 24  # elements that are compared at once
MULTIPLIER = -7046029254386353131  # 2^64 by the golden ratio, as int64

# A call of each operation, from a tensor and a group to a tensor.
OPERATIONS = {
    "one_shot_all_reduce_out": lambda op, x, out, group: op(x, "sum", group, out),
    "two_shot_all_reduce_out": lambda op, x, out, group: op(x, "sum", group, out),
    "multimem_one_shot_all_reduce_out": lambda op, x, out, group: op(x, "sum", group, out),
    "two_shot_all_reduce_": lambda op, x, out, group: op(x, "sum", group),
    "multimem_all_reduce_": lambda op, x, out, group: op(x, "sum", group),
    "reduce_scatter_out": lambda op, x, out, group: op(x, group, False, out),
}

# A call of each product with communication inside, from a PE's matrices A and B to its result.
PRODUCTS = {
    "fused_all_gather_matmul": lambda op, a, b, group: op(a, [b.t()], 0, group)[1][0],
    "fused_matmul_reduce_scatter": lambda op, a, b, group: op(a, b.t(), "sum", 0, group),
}


def mixed(i):
    """The hash that the kernel `fill` of bench/src/gemm/gemm.weft makes operands of."""
    h = i & 0xFFFFFFFF
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        h = ((h ^ (h >> shift)) * factor) & 0xFFFFFFFF
    return h ^ (h >> 16)


def operand(first, n, seed, whole):
    """Elements of an operand of a product, as that kernel makes them."""
    h = mixed(mixed(torch.arange(first, first + n, dtype=torch.int64, device="cuda")) ^ seed) >> 8
    return (h % 8 == 1).double() - (h % 8 == 0).double() if whole else h.double() / 8388608.0 - 1.0


def data(pe, first, n, round_, limit):
    """Whole numbers from 0 to limit that depend on PE, element and round."""
    x = torch.arange(first, first + n, dtype=torch.int64, device="cuda") + (pe << 40) + (round_ << 52)
    x = x * MULTIPLIER
    x = (x ^ (x >> 29)) * MULTIPLIER
    return torch.remainder(x ^ (x >> 32), limit + 1)


def events():
    """A start and an end that a graph can have in it."""
    return [torch.cuda.Event(enable_timing=True, external=True) for _ in range(2)]


class Peer:
    def join(self, ask):
        """Meets the other PEs: in a file, since anybody on this machine could talk to a store that listens."""
        self.rank, self.n_pes, self.graph = ask["rank"], ask["n_pes"], ask["graph"]
        self.limit, self.dtype = ask["limit"], DTYPES[ask["dtype"]]
        torch.cuda.set_device(ask["device"])
        minute = timedelta(seconds=60)
        self.store, self.exchanges, self.engine = dist.FileStore(ask["store"], self.n_pes), 0, None
        dist.init_process_group("nccl", store=self.store, rank=self.rank, world_size=self.n_pes, timeout=minute)
        self.group = dist.group.WORLD.group_name
        self.stream = torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)
        of = {"dtype": self.dtype, "device": "cuda"}
        self.memory = [symm_mem.empty(ask["elements"], **of) for _ in range(2)]
        self.handle = [symm_mem.rendezvous(m, self.group) for m in self.memory][0]
        l2 = torch.cuda.get_device_properties(ask["device"]).L2_cache_size
        self.scratch = torch.empty(2 * max(l2, 1 << 20), dtype=torch.uint8, device="cuda")
        events()
        torch.cuda.synchronize()
        return {"version": torch.__version__, "multicast": self.handle.multicast_ptr != 0}

    def prepare(self, ask):
        """Makes the first call of an operation, which says whether it can be had."""
        name, send, recv = ask["function"], ask["send"], ask["recv"]
        self.x = self.memory[0][:send]
        self.out = self.memory[1][:recv] if ask["apart"] else self.x
        self.engine = None
        if name in ENGINES:
            try:
                self.call = engine_call(self, name)
            except (RuntimeError, ValueError) as e:
                return {"refused": str(e).splitlines()[0]}
        else:
            op, call = getattr(torch.ops.symm_mem, name), OPERATIONS[name]
            self.call = lambda: call(op, self.x, self.out, self.group)
        self.fill(self.x, 0)
        return self.first()

    def normalise(self, ask):
        """Makes the operands of an allreduce with residual and norm behind it, and its first call."""
        try:
            self.norm = Norm(self, ask)
        except (RuntimeError, ValueError) as e:
            return {"refused": str(e).splitlines()[0]}
        self.call = self.norm.call
        return self.first()

    def compare(self, ask):
        """Calls with new data each; what is wrong, the first of it."""
        wrong = None
        for round_ in range(1, ask["rounds"] + 1):
            self.norm.fill(round_)
            self.handle.barrier(channel=0)
            self.call()
            self.stream.synchronize()
            wrong = wrong or self.norm.wrong(round_)
        return {"wrong": wrong}

    def exchange(self, own):
        """A value of every PE, in their order."""
        self.exchanges += 1
        self.store.set(f"exchange-{self.exchanges}-{self.rank}", json.dumps(own))
        return [json.loads(self.store.get(f"exchange-{self.exchanges}-{pe}")) for pe in range(self.n_pes)]

    def multiply(self, ask):
        """Makes the operands of a product, and its first call."""
        rows, n, k, of = ask["rows"], ask["n"], ask["k"], {"dtype": self.dtype, "device": "cuda"}
        self.operands = [(torch.empty(rows, k, **of), ask["seeds"][0]), (torch.empty(n, k, **of), ask["seeds"][1])]
        self.fill_operands(False)
        (a, _), (b, _) = self.operands
        op, call = getattr(torch.ops.symm_mem, ask["function"]), PRODUCTS[ask["function"]]

        def multiply():
            self.out = call(op, a, b, self.group)

        self.call = multiply
        return self.first()

    def fill_operands(self, whole):
        for matrix, seed in self.operands:
            flat = matrix.view(-1)
            for first in range(0, flat.numel(), CHUNK):
                n = min(CHUNK, flat.numel() - first)
                flat[first : first + n] = operand(first, n, seed, whole)

    def first(self):
        """Makes the first call."""
        self.handle.barrier(channel=0)
        self.stream.synchronize()
        began = time.perf_counter()
        try:
            self.call()
        except RuntimeError as e:
            torch.cuda.synchronize()  # fails again where it was no refusal
            return {"refused": str(e).splitlines()[0]}
        self.stream.synchronize()
        return {"first_us": (time.perf_counter() - began) * 1e6}

    def fill(self, tensor, round_):
        """This PE's data of a round."""
        for first in range(0, tensor.numel(), CHUNK):
            n = min(CHUNK, tensor.numel() - first)
            tensor[first : first + n] = data(self.rank, first, n, round_, self.limit)
        return tensor

    def block(self, calls):
        """A function that gives the microseconds of so many calls, all PEs beginning together."""
        start, end = events()

        def work():
            self.handle.barrier(channel=0)
            start.record()
            for _ in range(calls):
                self.call()
            end.record()

        graph = self.captured(work) if self.graph else None

        def run():
            if graph:
                graph.replay()
            else:
                torch.cuda._sleep(100_000)  # in which the host launches what follows
                work()
            self.stream.synchronize()
            return start.elapsed_time(end) * 1e3

        return run

    def captured(self, work):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            work()
        if hasattr(self.engine, "captured"):
            self.engine.captured()
        return graph

    def time(self, ask):
        for _ in range(ask["before"]):
            self.call()
        run, times = self.block(ask["calls"]), []
        run()
        for _ in range(ask["blocks"]):
            if ask["cold"]:
                self.scratch.zero_()
            times.append(run())
        return {"us": times}

    def arrange(self, ask):
        """Makes a block of so many calls, and runs it for the first time."""
        for _ in range(ask["before"]):
            self.call()
        self.run = self.block(ask["calls"])
        return self.again(ask)

    def again(self, ask):
        return {"us": [self.run()]}

    def sample(self, ask):
        """Multiplies twice, and gives elements of the result."""
        self.fill_operands(ask["whole"])
        self.handle.barrier(channel=0)
        self.call()
        self.call()
        self.stream.synchronize()
        rows, columns = (torch.tensor(x, device="cuda") for x in zip(*ask["places"]))
        return {"elements": self.out[rows, columns].double().tolist()}

    def check(self, ask):
        """Calls back to back with new data each; what is wrong, the first of it."""
        rounds = range(1, ask["rounds"] + 1)
        send, recv = self.x.numel(), self.out.numel()
        given = [self.fill(torch.empty_like(self.x), r) for r in rounds]
        got = [torch.empty_like(self.out) for _ in rounds]
        self.out.view(torch.uint8).fill_(255)  # What nobody writes is seen.
        self.handle.barrier(channel=0)

        def work():
            for g, r in zip(given, got):
                self.x.copy_(g)
                self.call()
                r.copy_(self.out)

        if self.graph:
            self.captured(work).replay()
        else:
            work()
        self.stream.synchronize()
        wrong, elements, offset = None, 0, self.rank * recv if recv < send else 0
        for round_, r in zip(rounds, got):
            for first in range(0, recv, CHUNK):
                n = min(CHUNK, recv - first)
                want = sum(data(pe, offset + first, n, round_, self.limit) for pe in range(self.n_pes)).double()
                found = r[first : first + n].double()
                bad = (found != want).nonzero().flatten()
                elements += bad.numel()
                if wrong is None and bad.numel():
                    i = bad[0].item()
                    wrong = {"round": round_, "index": first + i, "found": str(found[i].item())}
                    wrong["expected"] = str(want[i].item())
        return {"wrong": wrong and dict(wrong, elements=elements)}


peer = Peer()
while True:
    ask = questions.get()
    try:
        answer = getattr(peer, ask["ask"])(ask)
    except BaseException as e:
        answer = {"error": f"{type(e).__name__}: {e}"}
    print(json.dumps(answer), file=answers, flush=True)
