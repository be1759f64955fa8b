import { useQuery } from "@tanstack/react-query";
import { callerQuery } from "./api/queries";

const RANKS: Record<string, number> = { viewer: 1, operator: 2, admin: 3 };
export type Role = "viewer" | "operator" | "admin";

/** Whether the signed-in user has this role, or a higher one; true while that is not known. The server decides in any case. */
export function usePermission(): (role: Role) => boolean {
  const { data } = useQuery(callerQuery());
  return (role) => data === undefined || (RANKS[data.role] ?? 0) >= (RANKS[role] ?? 0);
}
