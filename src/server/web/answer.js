// Streams answers from the server into {text, reasoning, calls, tokens, request, finish, usage, error, ...}.
import { isShown } from './conversation.js';
import { $ } from './dom.js';
import { eventsOf } from './event_stream.js';
import { save } from './keeping.js';
import { pool } from './pool.js';
import { ServerError, askForKey, refusal, request } from './server.js';
import { requestFields } from './settings.js';

// The AbortControllers of the running answers. `onChange` is called when an answer begins or ends.
export const running = { stoppers: new Set(), onChange: () => {} };

export function stopAll() {
  for (const stopper of running.stoppers) stopper.abort();
}

// A call arrives in pieces: its index and name first, then its arguments.
function takeCall(calls, { index, id, function: called }) {
  const at = index ?? calls.length;
  while (calls.length <= at) calls.push({ id: `call_${calls.length}`, name: '', arguments: '' });
  if (id) calls[at].id = id;
  calls[at].name += called?.name ?? '';
  calls[at].arguments += called?.arguments ?? '';
}

const LEAST = -9999;  // stands for minus infinity
const rounded = (logprob) => (Number.isFinite(logprob) ? Math.round(logprob * 1e4) / 1e4 : LEAST);
const compact = ({ token, logprob, top_logprobs: tops }) => [token, rounded(logprob), (tops ?? []).map((top) => [top.token, rounded(top.logprob)])];

// Adds one event of the stream to the answer. True: it was the last.
export function takeEvent(answer, data) {
  if (data === '[DONE]') return true;
  const chunk = JSON.parse(data);
  if (chunk.error) throw new ServerError(chunk.error.message);
  const choice = chunk.choices?.[0];
  const delta = choice?.delta;
  if (delta?.content) answer.text += delta.content;
  if (delta?.reasoning_content) answer.reasoning = (answer.reasoning ?? '') + delta.reasoning_content;
  for (const call of delta?.tool_calls ?? []) takeCall(answer.calls ??= [], call);
  for (const entry of choice?.logprobs?.content ?? []) (answer.tokens ??= []).push(compact(entry));
  if (choice?.finish_reason) answer.finish = choice.finish_reason;
  if (chunk.usage) answer.usage = chunk.usage;
  return false;
}

// Asks once and streams the answer. Throws what went wrong.
async function attempt(answer, sent, stopper, changed) {
  const response = await request('/v1/chat/completions', {
    method: 'POST',
    signal: stopper.signal,
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: pool.model || undefined, stream: true, stream_options: { include_usage: true }, ...requestFields(sent) }),
  });
  if (!response.ok) throw await refusal(response);
  answer.request = Number(response.headers.get('x-request-id')) || null;
  answer.connection = pool.connection;  // the pool in which the request has this number; not kept
  answer.error = null;
  changed();
  let complete = false;
  for await (const { data } of eventsOf(response)) {
    complete = takeEvent(answer, data);
    if (complete) break;
    changed();
  }
  if (!complete && !answer.finish) throw new ServerError('The connection broke before the answer was complete.');
}

// Resolves to true when the user has entered a key, to false when the answer is stopped.
const keyFor = (stopper) => new Promise((resolve) => {
  stopper.signal.addEventListener('abort', () => resolve(false), { once: true });
  askForKey().then(() => resolve(true));
  $('key').focus();
});

// Streams one answer. `sent` has the fields of the request besides the settings. `changed` is called as the answer grows.
// If the server wants a key, the request waits for it and is sent then. Never throws.
export async function write(answer, sent, changed) {
  const stopper = new AbortController();
  answer.stopper = stopper;
  running.stoppers.add(stopper);
  running.onChange();
  Object.assign(answer, { text: answer.text ?? '', finish: null, error: null });
  if (isShown(answer)) save(false);
  for (let again = true; again;) {
    again = false;
    const started = performance.now();
    try {
      await attempt(answer, sent, stopper, changed);
      answer.seconds = (performance.now() - started) / 1000;
    } catch (error) {
      if (error.name === 'AbortError') answer.finish = 'stopped';
      else answer.error = error instanceof ServerError || error instanceof RangeError ? error.message : 'The server cannot be reached. Is it still running?';
      if (error.status === 401) {
        answer.error += ' What you wrote is sent when you have entered one.';
        changed();
        again = await keyFor(stopper);
        if (!again) answer.finish = 'stopped';
      }
    }
  }
  running.stoppers.delete(stopper);
  delete answer.stopper;
  changed();
  if (isShown(answer)) save();
  running.onChange();
}
