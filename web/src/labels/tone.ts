/** How much something asks for attention. Shown as a colour, always beside a mark of its own shape and a word. */
export type Tone = "good" | "busy" | "warn" | "bad" | "idle" | "note" | "unknown";
