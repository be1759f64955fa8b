import { useId } from "react";
import { type TypedDuration, UNITS, type Unit } from "../labels/typedDuration";

interface DurationFieldProps {
  label: string;
  value: TypedDuration;
  /** In seconds. */
  least: number;
  /** In seconds. */
  most: number;
  onChange: (value: TypedDuration) => void;
}

/** A number and its unit of time. */
export function DurationField({ label, value, least, most, onChange }: DurationFieldProps) {
  const id = useId();
  return (
    <div className="typed">
      <label htmlFor={id}>{label}</label>
      <span className="with-unit">
        <input
          id={id}
          type="number"
          inputMode="decimal"
          min={least / UNITS[value.unit]}
          max={most / UNITS[value.unit]}
          step="any"
          required
          value={value.number}
          onChange={(event) => onChange({ ...value, number: event.target.value })}
        />
        <select
          aria-label={`${label}: unit`}
          value={value.unit}
          onChange={(event) => onChange({ ...value, unit: event.target.value as Unit })}
        >
          {Object.keys(UNITS).map((unit) => (
            <option key={unit}>{unit}</option>
          ))}
        </select>
      </span>
    </div>
  );
}
