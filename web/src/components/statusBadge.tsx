import type { ReactNode } from "react";
import type { Tone } from "../labels/tone";

/** Each tone has a shape of its own, so that colour is not the only difference. */
const SHAPES: Record<Tone, ReactNode> = {
  good: <circle cx="6" cy="6" r="4.5" fill="currentColor" />,
  busy: (
    <>
      <circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" strokeWidth="1.5" />
      <path d="M6 2a4 4 0 0 1 0 8z" fill="currentColor" />
    </>
  ),
  warn: <path d="M6 1 11.5 10.8H.5z" fill="currentColor" />,
  bad: <path d="M1.5 1.5h9v9h-9z" fill="currentColor" />,
  idle: <path d="M3 2h2v8H3zM7 2h2v8H7z" fill="currentColor" />,
  note: <circle cx="6" cy="6" r="2" fill="currentColor" />,
  unknown: <circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" strokeWidth="1.5" strokeDasharray="2 1.6" />,
};

/** A word with the shape and the colour of its tone. */
export function StatusBadge({ tone, children }: { tone: Tone; children: ReactNode }) {
  return (
    <span className={`status-badge tone-${tone}`}>
      <svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true" focusable="false">
        {SHAPES[tone]}
      </svg>
      <span>{children}</span>
    </span>
  );
}
