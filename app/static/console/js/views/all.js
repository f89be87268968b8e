// Views by name; each is loaded on first use.
export const VIEWS = {
  models: async () => (await import("./models.js")).ModelsView,
  graph: async () => (await import("./graph.js")).GraphView,
  try: async () => (await import("./try.js")).TryView,
  profile: async () => (await import("./profile.js")).ProfileView,
  compare: async () => (await import("./compare.js")).CompareView,
  tune: async () => (await import("./tune.js")).TuneView,
};
