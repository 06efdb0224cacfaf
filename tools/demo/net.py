"""The three demo models in PyTorch. Parameter names are Hugging Face's, so the weights load into its classes unchanged."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

WIDTH, VOCABULARY, CONTEXT, EPSILON = 256, 1536, 2048, 1e-5
HEADS, KV_HEADS, HEAD, FEED_FORWARD = 4, 2, 64, 768
# Mamba-2: heads of so many channels, a state for each channel, taps of the convolution.
SSM_HEADS, SSM_HEAD, STATE, KERNEL = 8, 64, 64, 4
INNER = SSM_HEADS * SSM_HEAD
CONVOLVED = INNER + 2 * STATE
ATTENTION_SCALE = 0.125  # of the hybrid

KINDS = {
    "llama": ["llama"] * 8,
    "mamba2": ["mamba2"] * 16,
    "hybrid": ["h-attention" if i in (3, 7) else "h-mamba" for i in range(8)],
}
# What the embedding is multiplied by, what each layer's part of the sum is, and what logits are divided by.
SCALES = {"llama": (1.0, 1.0, 1.0), "mamba2": (1.0, 1.0, 1.0), "hybrid": (6.0, 0.5, 2.0)}


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x.float(), (x.shape[-1],), None, EPSILON).type_as(x) * self.weight.type_as(x)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def angles(length, device):
    """Cosines and sines of the rotation: [length, HEAD]."""
    frequencies = 10000.0 ** (-torch.arange(0, HEAD, 2, device=device).float() / HEAD)
    angle = torch.outer(torch.arange(length, device=device).float(), frequencies)
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Attention(nn.Module):
    def __init__(self, scale=None, rotated=True):
        super().__init__()
        self.scale, self.rotated = scale, rotated
        self.q_proj, self.k_proj = linear(WIDTH, HEADS * HEAD), linear(WIDTH, KV_HEADS * HEAD)
        self.v_proj, self.o_proj = linear(WIDTH, KV_HEADS * HEAD), linear(HEADS * HEAD, WIDTH)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, HEADS, HEAD).transpose(1, 2)
        k = self.k_proj(x).view(batch, length, KV_HEADS, HEAD).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, KV_HEADS, HEAD).transpose(1, 2)
        if self.rotated:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = k.repeat_interleave(HEADS // KV_HEADS, 1), v.repeat_interleave(HEADS // KV_HEADS, 1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, HEADS * HEAD))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = linear(WIDTH, FEED_FORWARD), linear(WIDTH, FEED_FORWARD)
        self.down_proj = linear(FEED_FORWARD, WIDTH)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class SharedMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_linear, self.output_linear = linear(WIDTH, 2 * FEED_FORWARD), linear(FEED_FORWARD, WIDTH)

    def forward(self, x):
        gate, up = self.input_linear(x).chunk(2, -1)
        return self.output_linear(F.silu(gate) * up)


def scan(x, dt, a, b, c, chunk=64):
    """The recurrence, chunk by chunk. x: [batch, length, heads, channels], dt: [batch, length, heads], a: [heads],
    b and c: [batch, length, state]; all float32; the length is a multiple of the chunk's."""
    batch, length, heads, channels = x.shape
    state, chunks = b.shape[-1], length // chunk
    decay = (dt * a).view(batch, chunks, chunk, heads).permute(0, 3, 1, 2)  # batch heads chunks chunk
    x = (x * dt[..., None]).view(batch, chunks, chunk, heads, channels).permute(0, 3, 1, 2, 4)
    b = b.view(batch, 1, chunks, chunk, state)
    c = c.view(batch, 1, chunks, chunk, state)
    sums = decay.cumsum(-1)
    # Within a chunk
    mask = torch.ones(chunk, chunk, dtype=torch.bool, device=x.device).tril()
    weights = torch.exp((sums[..., :, None] - sums[..., None, :]).masked_fill(~mask, -torch.inf))
    y = (c @ b.transpose(-1, -2) * weights) @ x
    # Each chunk's own state, and with it the state at each chunk's start
    own = (x * torch.exp(sums[..., -1:] - sums)[..., None]).transpose(-1, -2) @ b
    ends = F.pad(sums[..., -1].cumsum(-1), (1, 0))
    before = torch.ones(chunks, chunks, dtype=torch.bool, device=x.device).tril(-1)
    carry = torch.exp((ends[..., :-1][..., :, None] - ends[..., 1:][..., None, :]).masked_fill(~before, -torch.inf))
    start = (carry @ own.reshape(batch, heads, chunks, channels * state)).view(batch, heads, chunks, channels, state)
    y = y + (c @ start.transpose(-1, -2)) * torch.exp(sums)[..., None]
    return y.permute(0, 2, 3, 1, 4).reshape(batch, length, heads, channels)


class GatedNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(INNER))

    def forward(self, x, gate):
        return F.rms_norm(x.float() * F.silu(gate.float()), (INNER,), None, EPSILON) * self.weight


class Mamba(nn.Module):
    def __init__(self):
        super().__init__()
        self.in_proj, self.out_proj = linear(WIDTH, INNER + CONVOLVED + SSM_HEADS), linear(INNER, WIDTH)
        self.conv1d = nn.Conv1d(CONVOLVED, CONVOLVED, KERNEL, groups=CONVOLVED, padding=KERNEL - 1)
        dt = torch.exp(torch.rand(SSM_HEADS) * (math.log(.1) - math.log(.001)) + math.log(.001)).clamp(min=1e-4)
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))
        self.A_log = nn.Parameter(torch.log(torch.arange(1, SSM_HEADS + 1).float()))
        self.D = nn.Parameter(torch.ones(SSM_HEADS))
        self.norm = GatedNorm()

    def forward(self, u):
        batch, length, _ = u.shape
        gate, convolved, dt = self.in_proj(u).split([INNER, CONVOLVED, SSM_HEADS], -1)
        convolved = F.silu(self.conv1d(convolved.transpose(1, 2))[..., :length].transpose(1, 2))
        x, b, c = convolved.float().split([INNER, STATE, STATE], -1)
        x = x.view(batch, length, SSM_HEADS, SSM_HEAD)
        with torch.autocast("cuda", enabled=False):
            dt = F.softplus(dt.float() + self.dt_bias)
            y = scan(x, dt, -torch.exp(self.A_log), b, c) + x * self.D[:, None]
        return self.out_proj(self.norm(y.reshape(batch, length, INNER), gate).type_as(u))


class Layer(nn.Module):
    def __init__(self, kind, residual):
        super().__init__()
        self.kind, self.residual = kind, residual
        if kind == "mamba2":
            self.norm, self.mixer = RMSNorm(WIDTH), Mamba()
            return
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(WIDTH), RMSNorm(WIDTH)
        if kind == "llama":
            self.self_attn, self.mlp = Attention(), MLP()
            return
        self.shared_mlp = SharedMLP()
        if kind == "h-attention":
            self.self_attn = Attention(ATTENTION_SCALE, rotated=False)
        else:
            self.mamba = Mamba()

    def forward(self, x, cos, sin):
        if self.kind == "mamba2":
            return x + self.mixer(self.norm(x))
        h = self.input_layernorm(x)
        x = x + self.residual * (self.mamba(h) if self.kind == "h-mamba" else self.self_attn(h, cos, sin))
        h = self.post_attention_layernorm(x)
        return x + self.residual * (self.mlp(h) if self.kind == "llama" else self.shared_mlp(h))


class Net(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.scale, residual, self.divide = SCALES[model]
        self.emb = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer(kind, residual) for kind in KINDS[model])
        self.norm = RMSNorm(WIDTH)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=WIDTH**-.5 * (.5 if module.out_features == WIDTH else 1))
        nn.init.normal_(self.emb.weight, std=.02)

    def forward(self, ids, cos, sin):
        x = self.emb(ids) * self.scale
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.linear(self.norm(x), self.emb.weight) / self.divide
