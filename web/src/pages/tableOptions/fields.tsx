import type { Problem } from "../../api/problem";
import { Field, Radios, TextField } from "../../components/field";
import { type Column, Columns } from "./columns";
import { type OptionsDraft, wrongPriority } from "./draft";

interface OptionFieldsProps {
  draft: OptionsDraft;
  onChange: (changes: Partial<OptionsDraft>) => void;
  columns: Column[] | null;
  keyed: readonly string[];
  /** What the server refused the options for, if it did. */
  refused: Problem | null;
}

const escaped = (name: string): string => name.replaceAll("~", "~0").replaceAll("/", "~1");

/** The options of a table, each with what it means, and with what the server refused about it. */
export function OptionFields({ draft, onChange, columns, keyed, refused }: OptionFieldsProps) {
  const wrong = (...members: string[]): string | null =>
    members.map((member) => refused?.at(`/${member}`) ?? null).find((found) => found !== null) ?? null;
  const ofColumn = (name: string): string | null => wrong(`columns/${escaped(name)}`, `mask/${escaped(name)}`, `rename/${escaped(name)}`);
  return (
    <>
      <Columns columns={columns} keyed={keyed} draft={draft} onChange={onChange} wrong={ofColumn} />
      <Refused details={[wrong("columns"), wrong("mask"), wrong("rename"), wrong("key")]} />
      <p className="prose soft">
        A declared key is for tables without a key of their own; its columns must be unique, not null, and in the replica identity. Hashes
        need the secret <code>mask_key</code> of the source&apos;s connection.
      </p>
      <div className="fields">
        <Lines
          label="Only these columns"
          hint="Names or patterns with *, one a line. Empty: all columns."
          wrong={wrong("include_columns")}
          value={draft.include}
          onChange={(include) => onChange({ include })}
        />
        <Lines
          label="Columns left out"
          hint="Names or patterns with *, one a line; also for columns that are added later."
          wrong={wrong("exclude_columns")}
          value={draft.exclude}
          onChange={(exclude) => onChange({ exclude })}
        />
        <Lines
          label="Only rows where"
          hint="A condition of columns, literals and operators; empty: all rows. Requires PostgreSQL 15 or newer as the source."
          wrong={wrong("where")}
          value={draft.where}
          onChange={(where) => onChange({ where })}
        />
        <TextField
          label="Priority of its copies"
          hint="Tables with a higher one are copied first."
          wrong={wrongPriority(draft.priority) ?? wrong("priority")}
          inputMode="numeric"
          value={draft.priority}
          onChange={(priority) => onChange({ priority })}
        />
      </div>
      <Radios
        legend="When the target refuses a row"
        value={draft.refusedRows}
        choices={[
          { value: "park", label: "Park the table", hint: "The table stops at the row; the other tables are not affected." },
          { value: "set_aside", label: "Quarantine the row", hint: "The table is replicated without it." },
        ]}
        onChange={(refusedRows) => onChange({ refusedRows })}
      />
      <Radios
        legend="When the source deletes a row"
        value={draft.deletes}
        choices={[
          { value: "delete", label: "Delete it on the target", hint: "" },
          { value: "mark", label: "Keep it, marked", hint: "The column _deleted_at of the target's table has the time of the deletion." },
        ]}
        onChange={(deletes) => onChange({ deletes })}
      />
      <Refused details={[wrong("deletes")]} />
      <label className="check">
        <input type="checkbox" checked={draft.history} onChange={(event) => onChange({ history: event.target.checked })} />
        Keep every version of each row, in a table of its own whose name ends in __history
      </label>
      <Refused details={[wrong("history")]} />
      <label className="check">
        <input type="checkbox" checked={draft.insertOnly} onChange={(event) => onChange({ insertOnly: event.target.checked })} />
        Replicate only its inserts and truncates; updates and deletes on the source are not followed
      </label>
      <Refused details={[wrong("insert_only")]} />
      <label className="check">
        <input type="checkbox" checked={draft.intoExisting} onChange={(event) => onChange({ intoExisting: event.target.checked })} />
        Replicate into a table that exists on the target, which must be empty at first; only for PostgreSQL targets
      </label>
      <Refused details={[wrong("into_existing")]} />
    </>
  );
}

/** What the server refused about options that have no line of their own. */
function Refused({ details }: { details: (string | null)[] }) {
  return [...new Set(details)].map(
    (detail) =>
      detail !== null && (
        <p key={detail} className="tone-bad">
          {detail}
        </p>
      ),
  );
}

interface LinesProps {
  label: string;
  hint: string;
  wrong: string | null;
  value: string;
  onChange: (value: string) => void;
}

function Lines({ label, hint, wrong, value, onChange }: LinesProps) {
  return (
    <Field label={label} hint={hint} wrong={wrong}>
      {(described) => (
        <textarea
          {...described}
          className="code"
          rows={3}
          value={value}
          autoComplete="off"
          spellCheck={false}
          onChange={(event) => onChange(event.target.value)}
        />
      )}
    </Field>
  );
}
