// Requests to the server, with the key, and its errors.
import { $ } from './dom.js';
import { inTab } from './storage.js';

// A proxy before several servers sends all requests of this tab to the same one (docs/operations.md): the pool that the page
// shows is then that of the server which answers it.
let route = inTab.get('quire.route');
if (!route) inTab.set('quire.route', route = `page-${Math.random().toString(36).slice(2)}`);

let apiKey = inTab.get('quire.key') ?? '';
let keyArrived = null;  // {promise, resolve} while the page asks for a key

export class ServerError extends Error {
  constructor(message, status) { super(message); this.status = status; }
}

export function request(path, options = {}) {
  const headers = { 'x-quire-route': route, ...options.headers };
  if (apiKey) headers.authorization = `Bearer ${apiKey}`;
  return fetch(path, { ...options, headers, cache: 'no-store' });
}

const WORDS = {
  404: 'The server does not know this address.',
  413: 'The request is too large for the server.',
  429: 'The server is busy. Try again in a moment.',
  503: 'The server is shutting down or not ready.',
};

// The error of a response. It uses the server's own message if there is one.
export async function refusal(response) {
  const { status } = response;
  if (status === 401) return new ServerError(apiKey ? 'The server does not know this API key: it needs another one.' : 'The server needs an API key.', status);
  let message = '';
  try { message = (await response.json()).error?.message ?? ''; } catch { /* not JSON: use the status */ }
  const text = message || (WORDS[status] ?? `The server answered with status ${status}.`);
  return new ServerError(text[0].toUpperCase() + text.slice(1), status);
}

// Shows the form for the key. Resolves when the user has entered one.
export function askForKey() {
  if (!keyArrived) {
    keyArrived = {};
    keyArrived.promise = new Promise((resolve) => { keyArrived.resolve = resolve; });
  }
  $('key-form').hidden = false;
  return keyArrived.promise;
}

export function startKeyForm() {
  $('key-form').onsubmit = (event) => {
    event.preventDefault();
    apiKey = $('key').value.trim();
    inTab.set('quire.key', apiKey);
    $('key').value = '';
    $('key-form').hidden = true;
    $('prompt').focus();
    keyArrived?.resolve();
    keyArrived = null;
  };
}
