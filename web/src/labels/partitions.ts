import type { Action } from "../actions";
import type { Partition } from "../api/client";
import { some } from "./numbers";

/** Why a partition was loaded last. */
export const LOADED: Record<NonNullable<Partition["reason"]>, string> = {
  copied: "with the first copy of the table",
  asked: "by request",
  changed: "its rows differed from the source's",
  unknown: "it could not be compared",
};

/** What is said of a reload of partitions of the table `name`; `changed`: of those whose rows differ. */
export function partitionReload(name: string, partitions: string[] | "changed"): Omit<Action, "run"> {
  const changed = partitions === "changed";
  const which = changed ? "the differing partitions" : some(partitions.length, "partition");
  return {
    verb: changed ? "Reload differing" : "Reload chosen",
    title: `Reload ${which} of ${name}?`,
    does: [
      changed
        ? "Every partition is compared with its source at one position, which reads the whole table once; those that differ are read again."
        : `Their rows are read from the source again, with all partitions below them: ${partitions.join(", ")}.`,
      "The table stays live, and its old rows stay readable until the new ones replace them.",
    ],
    name: `partitions of ${name}`,
    done: `${name}: a reload of ${which} was requested.`,
  };
}
