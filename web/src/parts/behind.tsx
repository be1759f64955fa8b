import type { Subscription } from "../api/client";
import { bytes, seconds } from "../words/numbers";

/** How far a target is behind its source. */
export const Behind = ({ lag }: Pick<Subscription, "lag">) => (
  <>
    {seconds(lag.seconds)}
    {lag.bytes != null && <small>{bytes(lag.bytes)}</small>}
  </>
);
