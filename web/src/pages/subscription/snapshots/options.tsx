import { useId } from "react";
import { DurationField } from "../../../components/durationField";
import { formatWords, type Options } from "../../../labels/snapshots";
import { Field } from "../../freshness/fields";
import { TablePicker } from "../../freshness/tablePicker";

const FORMATS: [Options["format"], string][] = [
  ["parquet", "one file for each table"],
  ["duckdb", "one file with all tables"],
];
const WHICH: [Options["which"], string][] = [
  ["all", "all tables of the subscription"],
  ["some", "those that I name"],
];
const MOST_LIMIT_S = 86_400;

interface OptionFieldsProps {
  subscription: string;
  options: Options;
  onChange: (options: Options) => void;
}

/** What a snapshot has, and in which format. */
export function OptionFields({ subscription, options, onChange }: OptionFieldsProps) {
  const name = useId();
  const set = (changes: Partial<Options>): void => onChange({ ...options, ...changes });
  return (
    <>
      <Field legend="Format">
        {FORMATS.map(([format, means]) => (
          <label key={format} className="check">
            <input type="radio" name={`${name}-format`} checked={options.format === format} onChange={() => set({ format })} />
            {formatWords(format)}: {means}
          </label>
        ))}
      </Field>
      <Field legend="Which tables">
        {WHICH.map(([which, label]) => (
          <label key={which} className="check">
            <input type="radio" name={`${name}-which`} checked={options.which === which} onChange={() => set({ which })} />
            {label}
          </label>
        ))}
        {options.which === "some" && (
          <TablePicker subscription={subscription} picked={options.picked} onPick={(picked) => set({ picked })} />
        )}
        <label className="check">
          <input type="checkbox" checked={options.leaveOut} onChange={(event) => set({ leaveOut: event.target.checked })} />
          Leave out tables that are not live, instead of failing
        </label>
      </Field>
      <DurationField
        label="Maximum time to write it"
        value={options.limit}
        least={1}
        most={MOST_LIMIT_S}
        onChange={(limit) => set({ limit })}
      />
    </>
  );
}
