// Helpers for elements. They use the document only when called.

export const $ = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child != null));
  return element;
}

// A click beside a dialog closes it.
export function closeOnBackdrop(dialog) {
  dialog.addEventListener('click', (event) => { if (event.target === dialog) dialog.close(); });
}
