// Preact with htm: templates instead of a build step.
import { h, render, Fragment, Component } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);
export { h, render, Fragment, Component };
export {
  useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback, useReducer,
} from "../vendor/hooks.js";
