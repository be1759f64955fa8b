import type { Subscription } from "../api/client";
import { bytes, seconds } from "../labels/numbers";

/** The lag of the live tables of a target, in seconds and in bytes of log. */
export const LagCell = ({ lag }: { lag: Omit<Subscription["lag"], "tables"> & { tables?: number } }) => (
  <>
    {seconds(lag.seconds)}
    {lag.bytes != null && <small>{bytes(lag.bytes)}</small>}
    {lag.tables === 0 && <small>no table is live</small>}
  </>
);
