// A model file whose answers are given texts, so that tests know what a model writes. Each control token in `scripts` begins
// one: after it the model writes that text, piece by piece, and ends. The chat template chooses the answer by the token that
// it ends the prompt with. The model has one layer of zeros; its last matrix leads from each piece to the next.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

// Byte-level BPE writes each byte as a character that can be seen.
const spelling = (() => {
  const visible = (byte) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  const table = [];
  let next = 256;
  for (let byte = 0; byte < 256; ++byte) table.push(String.fromCodePoint(visible(byte) ? byte : next++));
  return table;
})();

class Gguf {
  constructor() { this.entries = []; this.tensors = []; }
  static text(value) {
    const bytes = Buffer.from(value);
    const size = Buffer.alloc(8);
    size.writeBigUInt64LE(BigInt(bytes.length));
    return Buffer.concat([size, bytes]);
  }
  static number(value, type) {
    const bytes = Buffer.alloc(type === 10 ? 8 : 4);
    if (type === 4) bytes.writeUInt32LE(value);
    if (type === 5) bytes.writeInt32LE(value);
    if (type === 6) bytes.writeFloatLE(value);
    if (type === 10) bytes.writeBigUInt64LE(BigInt(value));
    return bytes;
  }
  static value(value, type) { return type === 8 ? Gguf.text(value) : Gguf.number(value, type); }
  add(key, value, type) { this.entries.push(Buffer.concat([Gguf.text(key), Gguf.number(type, 4), Gguf.value(value, type)])); }
  addArray(key, values, type) {
    this.entries.push(Buffer.concat([Gguf.text(key), Gguf.number(9, 4), Gguf.number(type, 4), Gguf.number(values.length, 10),
      ...values.map((value) => Gguf.value(value, type))]));
  }
  addTensor(name, shape, values) { this.tensors.push({ name, shape, values }); }
  write(file) {
    const padded = (bytes) => Buffer.concat([bytes, Buffer.alloc((32 - (bytes.length % 32)) % 32)]);
    let offset = 0;
    const infos = this.tensors.map(({ name, shape, values }) => {
      const info = Buffer.concat([Gguf.text(name), Gguf.number(shape.length, 4), ...shape.map((length) => Gguf.number(length, 10)),
        Gguf.number(0, 4), Gguf.number(offset, 10)]);
      offset += Math.ceil(values.byteLength / 32) * 32;
      return info;
    });
    const head = Buffer.concat([Buffer.from('GGUF'), Gguf.number(3, 4), Gguf.number(this.tensors.length, 10), Gguf.number(this.entries.length, 10),
      ...this.entries, ...infos]);
    fs.writeFileSync(file, Buffer.concat([padded(head), ...this.tensors.map(({ values }) => padded(Buffer.from(values.buffer)))]));
  }
}

// Cuts a text into pieces that no script had before: each piece is a token of its own.
function pieces(text, used) {
  const bytes = Buffer.from(text);
  const out = [];
  for (let from = 0; from < bytes.length;) {
    let to = Math.min(from + 2, bytes.length);
    while (to < bytes.length && used.has(bytes.toString('latin1', from, to))) ++to;
    let piece = bytes.toString('latin1', from, to);
    // The rest of the text is no new piece: the pieces before it become part of it.
    while (out.length > 0 && (piece.length < 2 || used.has(piece))) piece = out.pop() + piece;
    assert.ok(piece.length > 1 && !used.has(piece), `a script is too short: ${JSON.stringify(text)}`);
    used.add(piece);
    out.push(piece);
    from = to;
  }
  return out.map((piece) => [...piece].map((c) => spelling[c.charCodeAt(0)]).join(''));
}

// The path of the file. `scripts`: { '<|control|>': 'what the model writes after it' }.
export function scriptedModel(scripts, chatTemplate) {
  const tokens = [...spelling];
  const types = tokens.map(() => 1);
  const add = (text, type) => { tokens.push(text); types.push(type); return tokens.length - 1; };
  const end = add('<|end_of_script|>', 3);
  const leads = [];
  const used = new Set();
  for (const [control, text] of Object.entries(scripts)) {
    let before = add(control, 3);
    for (const piece of pieces(text, used)) {
      const next = add(piece, 1);
      leads.push([before, next]);
      before = next;
    }
    leads.push([before, end]);
  }

  const width = Math.ceil(leads.length / 64) * 64;
  const model = new Gguf();
  model.add('general.architecture', 'llama', 8);
  for (const [key, value] of Object.entries({ block_count: 1, context_length: 8192, embedding_length: width, feed_forward_length: 32,
    'attention.head_count': width / 64, 'attention.head_count_kv': 1, vocab_size: tokens.length })) model.add(`llama.${key}`, value, 4);
  model.add('llama.attention.layer_norm_rms_epsilon', 1e-5, 6);
  model.add('tokenizer.ggml.model', 'gpt2', 8);
  model.add('tokenizer.ggml.pre', 'gpt-2', 8);
  model.addArray('tokenizer.ggml.tokens', tokens, 8);
  model.addArray('tokenizer.ggml.token_type', types, 5);
  model.addArray('tokenizer.ggml.merges', [], 8);
  model.add('tokenizer.ggml.eos_token_id', end, 4);
  model.add('tokenizer.chat_template', chatTemplate, 8);

  const embedding = new Float32Array(tokens.length * width);
  const output = new Float32Array(tokens.length * width);
  leads.forEach(([from, to], i) => { embedding[from * width + i] = 1; output[to * width + i] = 100; });
  model.addTensor('token_embd.weight', [width, tokens.length], embedding);
  model.addTensor('output.weight', [width, tokens.length], output);
  for (const name of ['output_norm', 'blk.0.attn_norm', 'blk.0.ffn_norm']) model.addTensor(`${name}.weight`, [width], new Float32Array(width).fill(1));
  for (const [name, shape] of Object.entries({ attn_q: [width, width], attn_k: [width, 64], attn_v: [width, 64], attn_output: [width, width],
    ffn_gate: [width, 32], ffn_up: [width, 32], ffn_down: [32, width] })) {
    model.addTensor(`blk.0.${name}.weight`, shape, new Float32Array(shape[0] * shape[1]));
  }
  const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'quire-scripted-')), 'scripted.gguf');
  model.write(file);
  return file;
}
