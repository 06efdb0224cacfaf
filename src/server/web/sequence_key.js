// The page identifies a sequence by its key, "request.choice". Its name and its colour follow from the key.

export const keyOf = (sequence) => `${sequence.request}.${sequence.choice ?? 0}`;

function parts(key) {
  const [request, choice] = key.split('.').map(Number);
  return { request, choice };
}

// A request keeps its colour. Consecutive requests get hues that are far apart.
export const hueOf = (request, choice = 0) => Math.round(200 + request * 137.508 + choice * 47) % 360;

export function hueOfKey(key) {
  const { request, choice } = parts(key);
  return hueOf(request, choice);
}

export function nameOfKey(key) {
  const { request, choice } = parts(key);
  return choice === 0 ? `#${request}` : `#${request} (choice ${choice + 1})`;
}

export function nameSeveral(keys) {
  return keys.length < 4 ? keys.map(nameOfKey).join(' and ') : `${keys.slice(0, 3).map(nameOfKey).join(', ')} and ${keys.length - 3} more`;
}
