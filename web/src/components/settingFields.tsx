import type { Field as Setting } from "../labels/kinds";
import { Field, TextField } from "./field";

interface SettingFieldsProps {
  fields: readonly Setting[];
  values: Record<string, string>;
  onChange: (name: string, value: string) => void;
  /** What is wrong with a setting; null if nothing is. */
  wrong?: (name: string) => string | null;
}

/** Settings that a JSON schema describes, each as a line of text or a choice. */
export function SettingFields({ fields, values, onChange, wrong }: SettingFieldsProps) {
  return (
    <div className="fields">
      {fields.map(({ name, label, hint, choices, number, required, initial }) => {
        const value = values[name] ?? initial;
        if (choices !== undefined) {
          return (
            <Field key={name} label={label} hint={hint} wrong={wrong?.(name) ?? null}>
              {(described) => (
                <select {...described} value={value} onChange={(event) => onChange(name, event.target.value)}>
                  {choices.map((choice) => (
                    <option key={choice}>{choice}</option>
                  ))}
                </select>
              )}
            </Field>
          );
        }
        return (
          <TextField
            key={name}
            label={label}
            hint={hint}
            wrong={wrong?.(name) ?? null}
            value={value}
            required={required}
            inputMode={number === true ? "decimal" : undefined}
            pattern={number === true ? "[0-9]+(\\.[0-9]+)?" : undefined}
            onChange={(typed) => onChange(name, typed)}
          />
        );
      })}
    </div>
  );
}
