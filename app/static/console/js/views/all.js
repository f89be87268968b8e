// The views there are: those with a title are of one model. Each is loaded when it is first gone to.
export const VIEWS = {
  models: { load: async () => (await import("./models.js")).ModelsView },
  graph: { title: "Graph", load: async () => (await import("./graph.js")).GraphView },
  try: { title: "Try it", load: async () => (await import("./try.js")).TryView },
  profile: { title: "Profile", load: async () => (await import("./profile.js")).ProfileView },
  compare: { title: "Compare", load: async () => (await import("./compare.js")).CompareView },
  tune: { title: "Tune", load: async () => (await import("./tune.js")).TuneView },
};

export const OF_A_MODEL = Object.entries(VIEWS).filter(([, view]) => view.title);
