import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ideas, model, takeModels } from './model.js';

test("the demo's prompts are shown only for the demo", () => {
  takeModels({ data: [{ id: 'quire-demo-llama-q8_0', vocabulary: 1536, chat: true }] });
  assert.ok(model.demo && ideas().includes('What is a quire?'));
  for (const other of [{ id: 'qwen3-8b', vocabulary: 151936 }, { id: 'quire-demo-x', vocabulary: 32000 }, { id: 'tiny', vocabulary: 1536 }]) {
    takeModels({ data: [other] });
    assert.ok(!model.demo && !ideas().some((idea) => /quire|Mia|Ruby/.test(idea)), other.id);
  }
  takeModels({});
  assert.ok(model.known, 'nothing new');
});
