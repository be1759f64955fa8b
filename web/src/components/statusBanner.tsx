import type { ReactNode } from "react";
import type { Place } from "../words/remedies";
import type { Tone } from "../words/tone";
import { Mark } from "./mark";
import { Remedy } from "./remedy";

interface LeadProps {
  tone: Tone;
  word: string;
  since?: ReactNode;
  why: string;
  remedy?: string | null;
  /** The page that it stands on. */
  here?: Place;
  children?: ReactNode;
}

/** How the thing of a page is, in one word, with its reason and what can be done about it. */
export function Lead({ tone, word, since, why, remedy, here, children }: LeadProps) {
  return (
    <div className={`lead tone-${tone}`}>
      <p className="lead-word">
        <Mark tone={tone}>{word}</Mark>
        {since !== undefined && <span className="soft">{since}</span>}
      </p>
      <p className="prose">{why}</p>
      {remedy != null && <Remedy text={remedy} here={here} className="prose soft" />}
      {children}
    </div>
  );
}
