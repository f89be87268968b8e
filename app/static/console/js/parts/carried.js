// The input that was tried last, for another view to go on with: what is sent is too large for an address.
let last = null;

export const carry = (model, request) => { last = { model, request }; };
export const carried = (model) => (last?.model === model ? last.request : null);
