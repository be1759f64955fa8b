import type { Role } from "../api/tokens";

export const ROLES: { value: Role; label: string; hint: string }[] = [
  { value: "viewer", label: "Viewer", hint: "Reads everything, waits and queries." },
  { value: "operator", label: "Operator", hint: "Also declares connections and subscriptions, and acts on them." },
  { value: "admin", label: "Administrator", hint: "Also manages tokens, and installs the DDL capture." },
  { value: "engine", label: "Engine", hint: "Registers as an engine; nothing else." },
];

/** Settings as they are typed: one on each line. */
export const settingsText = (settings: Record<string, string>): string =>
  Object.entries(settings)
    .map(([name, value]) => `${name} = ${value}`)
    .join("\n");

/** The settings of a typed text, or what is wrong with it. */
export function settingsOf(text: string): { settings: Record<string, string>; wrong: string | null } {
  const settings: Record<string, string> = {};
  for (const line of text.split("\n").map((each) => each.trim())) {
    if (line === "") continue;
    const at = line.indexOf("=");
    const name = line.slice(0, Math.max(at, 0)).trim();
    if (name === "") return { settings, wrong: `“${line}” is not a name, = and a value.` };
    if (name in settings) return { settings, wrong: `${name} has two lines.` };
    settings[name] = line.slice(at + 1).trim();
  }
  return { settings, wrong: null };
}

/** What turns these settings into those: null for each that is gone. */
export const settingsChange = (before: Record<string, string>, after: Record<string, string>): Record<string, string | null> => ({
  ...Object.fromEntries(Object.keys(before).flatMap((name) => (name in after ? [] : [[name, null]]))),
  ...Object.fromEntries(Object.entries(after).filter(([name, value]) => before[name] !== value)),
});
