import { keep, recall } from "./storage";
import { Store } from "./store";

export const THEMES = ["system", "light", "dark"] as const;
export const ZONES = ["local", "UTC"] as const;
export type Theme = (typeof THEMES)[number];
export type Zone = (typeof ZONES)[number];

const THEME_KEY = "penstock-theme";
const ZONE_KEY = "penstock-times";

function kept<Choice extends string>(key: string, choices: readonly Choice[], otherwise: Choice): Choice {
  const found = recall("local", key);
  return choices.find((choice) => choice === found) ?? otherwise;
}

/** Colours: the system's, or one kind always. `display.js` reads the same key before the first paint. */
export const theme = new Store<Theme>(kept(THEME_KEY, THEMES, "system"));
/** Whether times are shown in the reader's own zone. */
export const zone = new Store<Zone>(kept(ZONE_KEY, ZONES, "local"));

theme.subscribe(() => {
  keep("local", THEME_KEY, theme.get());
  if (theme.get() === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.get();
});
zone.subscribe(() => keep("local", ZONE_KEY, zone.get()));
