// What the server says about its model, and the prompts that fit it.
import { request } from './server.js';

// `demo`: the model that comes with Quire. `known`: the server has been asked. `chat`: it has a chat template.
export const model = { known: false, demo: false, chat: true };

const DEMO_VOCABULARY = 1536;  // no other model has so small a one and such a name

// Takes the answer of /v1/models.
export function takeModels(data) {
  const [served] = data?.data ?? [];
  if (!served) return;
  Object.assign(model, {
    known: true,
    demo: /^quire-demo-/.test(served.id) && served.vocabulary === DEMO_VOCABULARY,
    chat: served.chat !== false,
  });
}

// The demo model knows small stories, notes and counting. Another one is asked what people ask.
export const ideas = () => (model.demo ? [
  'Tell me a story about a brave fox named Ruby.', 'Remember these notes. The code of Mia is 4821. The red box holds a blue kite.',
  'Count from 17 to 25.', 'What is a quire?',
] : [
  'Explain how a hash table works, with a short example in Python.', 'Write a polite reply that declines an invitation.',
  'Compare trains and planes for a trip of 600 km, as a table.', 'What should I check before I sign a lease?',
]);

// Asks the server. False: it did not answer.
export async function askForModel() {
  try {
    const response = await request('/v1/models');
    if (!response.ok) return false;
    takeModels(await response.json());
  } catch { return false; }
  return model.known;
}
