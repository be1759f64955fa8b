import type { ReactNode } from "react";
import type { RemedyAction } from "../api/problem";
import type { Place } from "../labels/remedies";
import type { Tone } from "../labels/tone";
import { Remedy } from "./remedy";
import { StatusBadge } from "./statusBadge";

interface StatusBannerProps {
  tone: Tone;
  word: string;
  since?: ReactNode;
  why: string;
  remedy?: string | null;
  /** The operations that the remedy names. */
  actions?: readonly RemedyAction[] | undefined;
  /** The page that shows it. */
  here?: Place;
  children?: ReactNode;
}

/** The status of what a page is about, in one word, with its reason and its remedy. */
export function StatusBanner({ tone, word, since, why, remedy, actions, here, children }: StatusBannerProps) {
  return (
    <div className={`status-banner tone-${tone}`}>
      <p className="status-banner-word">
        <StatusBadge tone={tone}>{word}</StatusBadge>
        {since !== undefined && <span className="soft">{since}</span>}
      </p>
      <p className="prose">{why}</p>
      {remedy != null && <Remedy text={remedy} actions={actions} here={here} className="prose soft" />}
      {children}
    </div>
  );
}
