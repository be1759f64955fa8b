import { useEffect, useId, useRef } from "react";
import { THEMES, theme, ZONES, zone } from "../display";
import { forgetAllQueries } from "../queryHistory";
import { session, signOut } from "../session";
import { type Store, useStore } from "../store";

const THEME_WORDS = { system: "as the system", light: "light", dark: "dark" };
const ZONE_WORDS = { local: "local", UTC: "UTC" };

/** Colours, times, and the way out. */
export function Preferences() {
  const { token } = useStore(session);
  const menu = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const closeElsewhere = (event: Event): void => {
      if (event.target instanceof Node && menu.current?.contains(event.target) === false) menu.current.open = false;
    };
    document.addEventListener("pointerdown", closeElsewhere);
    document.addEventListener("focusin", closeElsewhere);
    return () => {
      document.removeEventListener("pointerdown", closeElsewhere);
      document.removeEventListener("focusin", closeElsewhere);
    };
  }, []);
  return (
    <details
      ref={menu}
      className="preferences"
      onKeyDown={(event) => {
        if (event.key !== "Escape" || menu.current === null) return;
        menu.current.open = false;
        menu.current.querySelector("summary")?.focus();
      }}
    >
      <summary>Display</summary>
      <div className="popup">
        <Choice legend="Colours" store={theme} choices={THEMES} words={THEME_WORDS} />
        <Choice legend="Times" store={zone} choices={ZONES} words={ZONE_WORDS} />
        {token !== null && (
          <button
            type="button"
            onClick={() => {
              // The next one at this browser may not see them.
              forgetAllQueries();
              signOut();
            }}
          >
            Sign out of all tabs
          </button>
        )}
      </div>
    </details>
  );
}

interface ChoiceProps<Value extends string> {
  legend: string;
  store: Store<Value>;
  choices: readonly Value[];
  words: Record<Value, string>;
}

function Choice<Value extends string>({ legend, store, choices, words }: ChoiceProps<Value>) {
  const chosen = useStore(store);
  const name = useId();
  return (
    <fieldset>
      <legend>{legend}</legend>
      {choices.map((choice) => (
        <label key={choice} className="check">
          <input type="radio" name={name} checked={choice === chosen} onChange={() => store.set(choice)} />
          {words[choice]}
        </label>
      ))}
    </fieldset>
  );
}
