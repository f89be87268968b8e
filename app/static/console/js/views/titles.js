// The views of one model, by name, in the order in which they are offered.
export const TITLES = { graph: "Graph", try: "Try it", profile: "Profile", compare: "Compare", tune: "Tune" };
