// Titles of the views of a model, in order.
export const TITLES = { graph: "Graph", try: "Try it", profile: "Profile", compare: "Compare", tune: "Tune" };
