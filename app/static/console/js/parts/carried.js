// Last input of Try it, passed to another view; it is too large for the URL.
let last = null;

export const carry = (model, request) => { last = { model, request }; };
export const carried = (model) => (last?.model === model ? last.request : null);
