import { useQuery } from "@tanstack/react-query";
import { connectionsQuery } from "../api/queries";
import type { Entry, Field as EntryField, ListField as List } from "../labels/kinds";
import { Field, TextField } from "./field";

interface ListFieldProps {
  list: List;
  entries: readonly Entry[];
  onChange: (entries: Entry[]) => void;
}

/** A setting that is a list. Its order counts: an entry is added at the end. */
export function ListField({ list: { label, hint, fields, least, most }, entries, onChange }: ListFieldProps) {
  return (
    <fieldset className="list-field">
      <legend>{label}</legend>
      {hint !== undefined && <p className="prose soft">{hint}</p>}
      <ol>
        {entries.map((entry, number) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: an entry is its place in the list
          <li key={number}>
            {fields.map((field) => (
              <Member
                key={field.name}
                field={field}
                label={`${field.label} ${number + 1}`}
                value={entry[field.name] ?? field.initial}
                others={entries.flatMap((other, at) => (at === number ? [] : (other[field.name] ?? [])))}
                onChange={(value) => onChange(entries.map((other, at) => (at === number ? { ...other, [field.name]: value } : other)))}
              />
            ))}
            {entries.length > least && (
              <button
                type="button"
                className="quiet"
                aria-label={`Remove ${number + 1} of ${label}`}
                onClick={() => onChange(entries.filter((_, at) => at !== number))}
              >
                Remove
              </button>
            )}
          </li>
        ))}
      </ol>
      {entries.length < most && (
        <button type="button" aria-label={`Add to ${label}`} onClick={() => onChange([...entries, {}])}>
          Add
        </button>
      )}
      <ul className="soft">
        {fields.map(({ name, label: what, hint: means }) => (
          <li key={name}>
            {what}: {means}
          </li>
        ))}
      </ul>
    </fieldset>
  );
}

interface MemberProps {
  field: EntryField;
  label: string;
  value: string;
  /** What the other entries have. */
  others: readonly string[];
  onChange: (value: string) => void;
}

function Member({ field: { connectionKind, required }, label, value, others, onChange }: MemberProps) {
  const connections = useQuery({ ...connectionsQuery(), enabled: connectionKind !== undefined });
  if (connectionKind === undefined) return <TextField label={label} value={value} required={required} onChange={onChange} />;
  const names = (connections.data ?? []).filter(({ kind }) => kind === connectionKind).map(({ name }) => name);
  const free = names.filter((name) => name === value || !others.includes(name));
  return (
    <Field
      label={label}
      wrong={connections.data !== undefined && free.length === 0 ? `No other connection of the kind ${connectionKind}.` : null}
    >
      {(described) => (
        <select {...described} required={required} value={value} onChange={(event) => onChange(event.target.value)}>
          <option value="">Choose …</option>
          {free.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      )}
    </Field>
  );
}
