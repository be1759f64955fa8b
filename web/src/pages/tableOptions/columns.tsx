import type { SourceTable } from "../../api/client";
import { type OptionsDraft, takesColumn, unknownColumns, type ValueChoice, valueChoice, withColumn, withValue } from "./draft";

export type Column = SourceTable["columns"][number];

interface ColumnsProps {
  /** Of the source, with its types; null where they could not be read. */
  columns: Column[] | null;
  /** The source's own key. */
  keyed: readonly string[];
  draft: OptionsDraft;
  onChange: (changes: Partial<OptionsDraft>) => void;
  /** What is wrong with the members of the options for this column; null if nothing is. */
  wrong: (column: string) => string | null;
}

const VALUES: [ValueChoice, string][] = [
  ["as it is", "as they are"],
  ["text", "as text"],
  ["null", "masked: NULL"],
  ["constant", "masked: a constant"],
  ["hash.text", "masked: hash"],
  ["hash.bytea", "masked: hash, as bytes"],
];

/** What is replicated of each column, and as what. */
export function Columns({ columns, keyed, draft, onChange, wrong }: ColumnsProps) {
  const known = (columns ?? []).map(({ name }) => name);
  const others = unknownColumns(draft, known);
  if (known.length === 0 && others.length === 0) return <p className="soft">Its columns are not known.</p>;
  return (
    <table className="ledger option-columns">
      <caption className="unseen">Columns</caption>
      <thead>
        <tr>
          <th scope="col">Column</th>
          <th scope="col">Replicated</th>
          <th scope="col">Values</th>
          <th scope="col">Name on the target</th>
          <th scope="col">Key</th>
        </tr>
      </thead>
      <tbody>
        {(columns ?? []).map(({ name, type }) => (
          <Row
            key={name}
            name={name}
            about={<code className="soft">{type}</code>}
            keyed={keyed.includes(name)}
            {...{ draft, onChange, wrong }}
          />
        ))}
        {others.map((name) => (
          <Row
            key={name}
            name={name}
            about={<small className={columns === null ? "soft" : "tone-warn"}>{columns === null ? "" : "not on the source"}</small>}
            keyed={false}
            {...{ draft, onChange, wrong }}
          />
        ))}
      </tbody>
    </table>
  );
}

interface RowProps extends Pick<ColumnsProps, "draft" | "onChange" | "wrong"> {
  name: string;
  about: React.ReactNode;
  keyed: boolean;
}

function Row({ name, about, keyed, draft, onChange, wrong }: RowProps) {
  const taken = takesColumn(draft, name);
  const value = valueChoice(draft, name);
  const fault = wrong(name);
  const byPattern = !taken && !takesColumn({ ...draft, ...withColumn(draft, name, true) }, name);
  const toggleKey = (chosen: boolean): void => onChange({ key: chosen ? [...draft.key, name] : draft.key.filter((each) => each !== name) });
  return (
    <tr>
      <th scope="row" data-column="Column">
        <span>
          {name} {about}
        </span>
        {keyed && <small>key on the source</small>}
        {fault !== null && <small className="tone-bad">{fault}</small>}
      </th>
      <td data-column="Replicated">
        <input
          type="checkbox"
          aria-label={`Replicate ${name}`}
          checked={taken}
          disabled={byPattern}
          onChange={(event) => onChange(withColumn(draft, name, event.target.checked))}
        />
        {byPattern && <small>by a pattern</small>}
      </td>
      <td data-column="Values">
        <select
          aria-label={`Values of ${name}`}
          value={value}
          disabled={!taken}
          onChange={(event) => onChange(withValue(draft, name, event.target.value as ValueChoice))}
        >
          {VALUES.map(([choice, words]) => (
            <option key={choice} value={choice}>
              {words}
            </option>
          ))}
        </select>
        {value === "constant" && (
          <input
            aria-label={`Constant in place of ${name}`}
            value={draft.mask[name]?.value ?? ""}
            autoComplete="off"
            spellCheck={false}
            onChange={(event) => onChange(withValue(draft, name, "constant", event.target.value))}
          />
        )}
      </td>
      <td data-column="Name on the target">
        <input
          aria-label={`Name of ${name} on the target`}
          value={draft.rename[name] ?? ""}
          placeholder={name}
          disabled={!taken}
          maxLength={63}
          autoComplete="off"
          spellCheck={false}
          onChange={(event) => onChange({ rename: { ...draft.rename, [name]: event.target.value } })}
        />
      </td>
      <td data-column="Key">
        <input
          type="checkbox"
          aria-label={`${name} is part of the key`}
          checked={draft.key.includes(name)}
          onChange={(event) => toggleKey(event.target.checked)}
        />
      </td>
    </tr>
  );
}
