// What the page keeps in the browser. If the browser forbids it or is full, the page works on with what it holds in memory,
// and `set` says what is wrong.

export class Kept {
  #memory = new Map();

  // `open()` returns the browser's storage. It may throw, and so may everything that is done with it.
  constructor(open) { this.open = open; }

  #try(action, fallback) {
    try { return action(this.open()); } catch { return fallback; }
  }

  get(name) {
    const text = this.#memory.get(name) ?? this.#try((storage) => storage.getItem(name), null);
    try { return text === null ? null : JSON.parse(text); } catch { return null; }
  }

  // Null, or why it was not kept: 'full' or 'denied'.
  set(name, value) {
    const text = JSON.stringify(value);
    try {
      this.open().setItem(name, text);
      this.#memory.delete(name);
      return null;
    } catch (error) {
      this.#memory.set(name, text);
      return /quota/i.test(error?.name ?? '') ? 'full' : 'denied';
    }
  }

  // Keeps it in memory only.
  hold(name, value) { this.#memory.set(name, JSON.stringify(value)); }

  // True: the browser has it, in this version or an older one.
  has(name) { return this.#try((storage) => storage.getItem(name) !== null, false); }

  remove(name) {
    this.#memory.delete(name);
    this.#try((storage) => storage.removeItem(name));
  }

  names(prefix) {
    const names = this.#try((storage) => Array.from({ length: storage.length }, (_, i) => storage.key(i)), []);
    return [...new Set([...names, ...this.#memory.keys()])].filter((name) => name.startsWith(prefix));
  }
}

export const kept = new Kept(() => localStorage);       // as long as the browser keeps it
export const inTab = new Kept(() => sessionStorage);    // until the tab is closed
