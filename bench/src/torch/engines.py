# Allreduce kernels of inference engines, as FlashInfer's package has them: its own, which come from
# TensorRT-LLM, and vLLM's. Neither uses multicast addresses here.
import math

# The greatest message in bytes. vLLM's engine gives FlashInfer 64 MiB on 2 GPUs.
LARGEST = 64 << 20
# The number of CTAs that vLLM gives its kernel, which is also the greatest one.
VLLM_CTAS = 36


def matrix(elements, hidden=8192):
    """A message as engines have it: the numbers of tokens and of elements of each token."""
    hidden = math.gcd(elements, hidden)
    return elements // hidden, hidden


class FlashInfer:
    """FlashInfer's allreduce, alone or with what follows it in a layer."""

    def __init__(self, peer, tokens, hidden):
        import flashinfer.comm as comm

        self.comm = comm
        self.workspace = comm.create_allreduce_fusion_workspace(
            backend="trtllm",
            world_size=peer.n_pes,
            rank=peer.rank,
            max_token_num=tokens,
            hidden_dim=hidden,
            dtype=peer.dtype,
        )

    def call(self, x, pattern, one_shot, **arguments):
        """Launches the kernel in its fastest way: it may begin before the preceding launch has ended."""
        self.comm.allreduce_fusion(
            input=x,
            workspace=self.workspace,
            pattern=getattr(self.comm.AllReduceFusionPattern, pattern),
            launch_with_pdl=True,
            trigger_completion_at_end=False,
            use_oneshot=one_shot,
            fp32_acc=True,
            **arguments,
        )


class Vllm:
    """vLLM's allreduce. A call outside of graphs copies its operand to memory that the PEs share, as in vLLM."""

    def __init__(self, peer, x):
        import flashinfer.comm as comm

        self.comm, self.peer = comm, peer
        self.bytes = x.numel() * x.element_size()
        self.shared, signals = self.share(comm.vllm_meta_size() + self.bytes)
        self.buffer, buffers = self.share(self.bytes)
        self.scratch = torch.empty(16 << 20, dtype=torch.uint8, device="cuda")
        self.handle = comm.vllm_init_custom_ar(signals, self.scratch, peer.rank, True)
        comm.vllm_register_buffer(self.handle, buffers)
        peer.handle.barrier(channel=0)
        torch.cuda.synchronize()

    def share(self, size):
        """Memory of which every PE has the addresses."""
        memory = symm_mem.empty(size, dtype=torch.uint8, device="cuda").zero_()
        handle = symm_mem.rendezvous(memory, self.peer.group)
        of = lambda pe: handle.get_buffer(pe, (size,), torch.uint8, storage_offset=0).data_ptr()
        return (memory, handle), [of(pe) for pe in range(self.peer.n_pes)]

    def call(self, x, out):
        registered = torch.cuda.is_current_stream_capturing()
        buffer = 0 if registered else self.buffer[0].data_ptr()
        self.comm.vllm_all_reduce(self.handle, x, out, buffer, self.bytes, VLLM_CTAS)

    def captured(self):
        """Gives the kernels of a graph the addresses of the other PEs' operands."""
        own = [list(part) for part in self.comm.vllm_get_graph_buffer_ipc_meta(self.handle)]
        handles, offsets = zip(*self.peer.exchange(own))
        self.comm.vllm_register_graph_buffers(self.handle, list(handles), list(offsets))


def flashinfer(one_shot):
    def call(peer):
        tokens, hidden = matrix(peer.x.numel())
        if not one_shot and tokens <= peer.n_pes:
            raise RuntimeError("FlashInfer's two-shot kernel needs more tokens than PEs")
        engine = peer.engine = FlashInfer(peer, tokens, hidden)
        x, out = peer.x.view(tokens, hidden), peer.out.view(tokens, hidden)
        return lambda: engine.call(x, "kAllReduce", one_shot, output=out)

    return call


def vllm(peer):
    peer.x = torch.empty_like(peer.x)  # in memory whose handle other processes can open
    engine = peer.engine = Vllm(peer, peer.x)
    return lambda: engine.call(peer.x, peer.out)


def engine_call(peer, name):
    """The call of a function, on the PE's operand and result."""
    if peer.x.numel() * peer.x.element_size() > LARGEST:
        raise RuntimeError(f"inference engines send at most {LARGEST >> 20} MiB in one call")
    return ENGINES[name](peer)


# What makes the call of each function.
ENGINES = {
    "flashinfer_one_shot": flashinfer(True),
    "flashinfer_two_shot": flashinfer(False),
    "vllm_all_reduce": vllm,
}

# What FlashInfer does after the allreduce, by the form of the result: nothing more than the norm, a scale for the
# tensor, a scale for each token; the last two also with the norm in the type of the operand.
PATTERNS = {
    "plain": "kARResidualRMSNorm",
    "tensor": "kARResidualRMSNormFP8Quant",
    "tensor+norm": "kARResidualRMSNormOutFP8Quant",
    "token": "kARResidualRMSNormDynamicFP8Quant",
    "token+norm": "kARResidualRMSNormOutDynamicFP8Quant",
}


class Norm:
    """Allreduce, residual and RMSNorm in one kernel of FlashInfer."""

    def __init__(self, peer, ask):
        tokens, hidden, form = ask["tokens"], ask["hidden"], ask["form"]
        self.peer, self.eps = peer, ask["eps"]
        of = {"dtype": peer.dtype, "device": "cuda"}
        matrices = [torch.empty(tokens, hidden, **of) for _ in range(4)]
        self.x, self.residual, self.sum, self.norm = matrices
        self.weight = torch.empty(hidden, **of)
        self.quantised = torch.empty(tokens, hidden, dtype=torch.float8_e4m3fn, device="cuda")
        self.scale = torch.full((tokens, 1), ask["scale"], device="cuda")
        arguments = {"residual_in": self.residual, "residual_out": self.sum}
        arguments |= {"rms_gamma": self.weight, "rms_eps": self.eps}
        self.results = []
        if form == "plain" or form.endswith("+norm"):
            arguments["norm_out"] = self.norm
            self.results.append("norm")
        if form != "plain":
            arguments["quant_out"] = self.quantised
            self.results.append("quantised")
            name, scale = ("scale_out", self.scale) if form.startswith("token") else ("scale_factor", self.scale[0])
            arguments[name] = scale
        self.engine = FlashInfer(peer, tokens, hidden)
        self.fill(0)
        self.call = lambda: self.engine.call(self.x, PATTERNS[form], None, **arguments)

    def numbers(self, seed, round_, n):
        """Numbers from -1 to 1 that the type of the operands can represent."""
        return (data(seed, 0, n, round_, 4096).float() / 2048 - 1).to(self.peer.dtype)

    def fill(self, round_):
        n = self.x.numel()
        self.x.copy_(self.numbers(self.peer.rank, round_, n).view_as(self.x))
        self.residual.copy_(self.numbers(1000, round_, n).view_as(self.x))
        self.weight.copy_(1 + self.numbers(1001, 0, self.weight.numel()) / 4)

    def wrong(self, round_):
        """The first element of a result that is not what float64 gives, within the spacing of the result's type."""
        n = self.x.numel()
        total = sum(self.numbers(pe, round_, n).double() for pe in range(self.peer.n_pes)).view_as(self.x)
        total += self.residual.double()
        norm = total * torch.rsqrt(total.square().mean(1, keepdim=True) + self.eps) * self.weight.double()
        eps = torch.finfo(self.peer.dtype).eps
        found = {"sum": self.sum, "norm": self.norm, "quantised": self.quantised.double() * self.scale.double()}
        # The operands of the norm are rounded, and so is the norm: two spacings, or one of e4m3 and half of its least.
        least = self.scale.double() * 2**-10
        bounds = {"sum": (total, eps, eps), "norm": (norm, 3 * eps, eps), "quantised": (norm, 2**-3, eps + least)}
        for name in ["sum"] + self.results:
            want, relative, absolute = bounds[name]
            got = found[name].double()
            bad = ~((got - want).abs() <= want.abs() * relative + absolute)  # also finds NaN
            if bad.any():
                i = bad.flatten().nonzero()[0].item()
                want, got = want.flatten()[i].item(), got.flatten()[i].item()
                values = {"expected": want, "found": got if math.isfinite(got) else None}
                values["bound"] = abs(want) * relative + torch.as_tensor(absolute).max().item()
                return {"elements": int(bad.sum()), "tensor": name, "index": i} | values
        return None
