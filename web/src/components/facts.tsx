import type { ReactNode } from "react";

/** Names and values in a row that wraps; `[name, value, small print]`. What is null is left out. */
export function Facts({ facts }: { facts: ([string, ReactNode, ReactNode?] | null)[] }) {
  return (
    <dl className="facts">
      {facts.map(
        (fact) =>
          fact !== null && (
            <div key={fact[0]}>
              <dt>{fact[0]}</dt>
              <dd>
                {fact[1]}
                {fact[2] !== undefined && <small>{fact[2]}</small>}
              </dd>
            </div>
          ),
      )}
    </dl>
  );
}
