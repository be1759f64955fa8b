import { useQuery } from "@tanstack/react-query";
import type { ConnectionKind } from "./api/client";
import { connectionKindsQuery } from "./api/queries";

/** The kinds of connections; none while they are not read yet. */
export const useKinds = (): readonly ConnectionKind[] => useQuery(connectionKindsQuery()).data ?? [];
