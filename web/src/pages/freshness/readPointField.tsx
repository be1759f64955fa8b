import { useQuery } from "@tanstack/react-query";
import { useId } from "react";
import { Link } from "wouter";
import { subscriptionPart } from "../../addresses";
import { type ReadPoint, readPointsQuery } from "../../api/readPoints";
import { QueryBoundary } from "../../components/queryBoundary";

interface ReadPointFieldProps {
  subscription: string;
  /** Empty: none is chosen. */
  value: string;
  onChange: (name: string) => void;
}

/** One of a subscription's read points. */
export function ReadPointField({ subscription, value, onChange }: ReadPointFieldProps) {
  const points = useQuery(readPointsQuery(subscription));
  return (
    <div className="typed">
      <QueryBoundary query={points}>{(found) => <Choice points={found} value={value} onChange={onChange} />}</QueryBoundary>
      <small>
        <Link href={subscriptionPart(subscription, "read-points")}>Create read points</Link>
      </small>
    </div>
  );
}

function Choice({ points, value, onChange }: { points: ReadPoint[] } & Pick<ReadPointFieldProps, "value" | "onChange">) {
  const id = useId();
  const usable = points.filter(({ state }) => state !== "ended");
  const isGone = value !== "" && !usable.some(({ name }) => name === value);
  return (
    <>
      <label htmlFor={id}>Read point</label>
      <select id={id} required value={value} aria-describedby={`${id}-hint`} onChange={(event) => onChange(event.target.value)}>
        <option value="">choose one</option>
        {isGone && <option value={value}>{value}, ended</option>}
        {usable.map(({ name, position }) => (
          <option key={name} value={name}>
            {name}, at {position}
          </option>
        ))}
      </select>
      <small id={`${id}-hint`}>
        {usable.length === 0 ? "There is none that could be read." : "All its tables are as of one position."}
      </small>
    </>
  );
}
