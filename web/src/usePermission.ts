import { useQuery } from "@tanstack/react-query";
import { callerQuery } from "./api/queries";

const RANKS: Record<string, number> = { viewer: 1, operator: 2, admin: 3 };
export type Role = "operator" | "admin";

/** Whether whoever is signed in may do what this role may; as long as that is not known, yes. The server decides in any case. */
export function usePermission(): (role: Role) => boolean {
  const { data } = useQuery(callerQuery());
  return (role) => data === undefined || (RANKS[data.role] ?? 0) >= (RANKS[role] ?? 0);
}
