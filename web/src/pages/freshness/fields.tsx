import { type ReactNode, useId } from "react";

const MOST_S = 600;

/** A question with its choices. */
export const Field = ({ legend, children }: { legend: string; children: ReactNode }) => (
  <fieldset className="field">
    <legend>{legend}</legend>
    {children}
  </fieldset>
);

interface TypedProps {
  value: string;
  onChange: (value: string) => void;
}

/** A position in the source's log. What is no position is refused by the server, which says how it is written. */
export function PositionField({ value, onChange }: TypedProps) {
  const id = useId();
  return (
    <div className="typed">
      <label htmlFor={id}>Position</label>
      <input
        id={id}
        className="code"
        value={value}
        required
        maxLength={1000}
        placeholder="0/16B3748"
        autoComplete="off"
        spellCheck={false}
        aria-describedby={`${id}-hint`}
        onChange={(event) => onChange(event.target.value)}
      />
      <small id={`${id}-hint`}>
        After your commit on the source: <code>SELECT pg_current_wal_insert_lsn()</code>
      </small>
    </div>
  );
}

interface SecondsFieldProps extends TypedProps {
  label: string;
  hint?: string;
  least: number;
  disabled?: boolean;
}

export function SecondsField({ label, hint, value, least, disabled = false, onChange }: SecondsFieldProps) {
  const id = useId();
  return (
    <div className="typed">
      <label htmlFor={id}>{label}</label>
      <span className="with-unit">
        <input
          id={id}
          type="number"
          inputMode="decimal"
          min={least}
          max={MOST_S}
          step="any"
          required
          disabled={disabled}
          value={value}
          aria-describedby={`${id}-unit`}
          onChange={(event) => onChange(event.target.value)}
        />
        <span id={`${id}-unit`} className="soft">
          seconds{hint === undefined ? "" : `; ${hint}`}
        </span>
      </span>
    </div>
  );
}
