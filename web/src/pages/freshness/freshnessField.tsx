import { type ReactNode, useId } from "react";
import { Field, PositionField } from "./fields";

/** What rows have to contain. */
export type FreshnessMode = "latest" | "position" | "any";

export const FRESHNESS_MODES: [FreshnessMode, string][] = [
  ["latest", "everything committed on the source until now"],
  ["position", "everything up to a position"],
  ["any", "the current rows, without waiting"],
];

/** How fresh rows have to be; the position counts with its mode only. */
export interface FreshnessWish<Mode extends string = FreshnessMode> {
  mode: Mode;
  position: string;
}

interface FreshnessFieldProps<Wish extends FreshnessWish<string>> {
  wish: Wish;
  modes: [Wish["mode"], string][];
  onWish: (wish: Wish) => void;
  /** What a further mode asks for. */
  children?: ReactNode;
}

/** How fresh rows have to be. */
export function FreshnessField<Wish extends FreshnessWish<string>>({ wish, modes, onWish, children }: FreshnessFieldProps<Wish>) {
  const name = useId();
  return (
    <Field legend="Required freshness">
      {modes.map(([mode, label]) => (
        <label key={mode} className="check">
          <input type="radio" name={name} checked={wish.mode === mode} onChange={() => onWish({ ...wish, mode })} />
          {label}
        </label>
      ))}
      {wish.mode === "position" && <PositionField value={wish.position} onChange={(position) => onWish({ ...wish, position })} />}
      {children}
    </Field>
  );
}
