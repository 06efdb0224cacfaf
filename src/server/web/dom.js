// Helpers for elements and for the tab's storage. They use the document only when called.

export const $ = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child != null));
  return element;
}

export function stored(name, fallback) {
  try { return JSON.parse(sessionStorage.getItem(name)) ?? fallback; } catch { return fallback; }
}

export function store(name, value) {
  try { sessionStorage.setItem(name, JSON.stringify(value)); } catch { /* full or forbidden: the page works without */ }
}
