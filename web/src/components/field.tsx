import { type InputHTMLAttributes, type ReactNode, useId } from "react";

interface FieldProps {
  label: string;
  hint?: ReactNode;
  /** What is wrong with the value, if anything is. */
  wrong?: string | null;
  children: (described: { id: string; "aria-describedby"?: string; "aria-invalid"?: boolean }) => ReactNode;
}

/** A control under its name, with what is to be known of it. */
export function Field({ label, hint, wrong, children }: FieldProps) {
  const id = useId();
  const bad = wrong != null;
  const said = bad || hint !== undefined;
  return (
    <div className="entry">
      <label htmlFor={id}>{label}</label>
      {children({ id, ...(said ? { "aria-describedby": `${id}-hint` } : {}), ...(bad ? { "aria-invalid": true } : {}) })}
      {said && (
        <p id={`${id}-hint`} className={bad ? "tone-bad" : "soft"}>
          {bad ? wrong : hint}
        </p>
      )}
    </div>
  );
}

type TextProps = Omit<FieldProps, "children"> &
  Omit<InputHTMLAttributes<HTMLInputElement>, "onChange" | "value"> & { value: string; onChange: (value: string) => void };

/** A line of text under its name. */
export function TextField({ label, hint, wrong, onChange, ...input }: TextProps) {
  return (
    <Field label={label} hint={hint} wrong={wrong ?? null}>
      {(described) => (
        <input autoComplete="off" spellCheck={false} {...input} {...described} onChange={(event) => onChange(event.target.value)} />
      )}
    </Field>
  );
}

interface RadiosProps<Value extends string> {
  legend: string;
  value: Value;
  choices: { value: Value; label: ReactNode; hint?: ReactNode }[];
  onChange: (value: Value) => void;
}

/** One of several, each with what it means. */
export function Radios<Value extends string>({ legend, value, choices, onChange }: RadiosProps<Value>) {
  const name = useId();
  return (
    <fieldset className="radios">
      <legend>{legend}</legend>
      {choices.map((choice) => (
        <label key={choice.value} className="radio">
          <input type="radio" name={name} checked={choice.value === value} onChange={() => onChange(choice.value)} />
          <span>
            {choice.label}
            {choice.hint !== undefined && <small>{choice.hint}</small>}
          </span>
        </label>
      ))}
    </fieldset>
  );
}
