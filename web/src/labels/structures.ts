import type { Version, VersionColumn } from "../api/client";

/** What a structure is different in from the one before, in words; null where that is not known. Empty: in nothing. */
export function differences(version: Version, before: Version | undefined): string[] | null {
  if (version.changes != null && version.changes.length > 0) return version.changes;
  // A copy finds a structure as it is, and names no changes.
  if (before?.columns == null || version.columns == null) return version.changes ?? null;
  return compared(before.columns, version.columns);
}

function compared(before: VersionColumn[], after: VersionColumn[]): string[] {
  const found: string[] = [];
  for (const column of after) {
    const old = before.find(({ name }) => name === column.name);
    if (old === undefined) found.push(`column ${column.name} is new`);
    else if (old.type !== column.type) found.push(`column ${column.name} is now ${column.type}, was ${old.type}`);
    else if (old.nullable !== column.nullable)
      found.push(`column ${column.name} ${column.nullable === false ? "takes no nulls now" : "takes nulls now"}`);
  }
  const gone = before.filter(({ name }) => !after.some((column) => column.name === name));
  return [...found, ...gone.map(({ name }) => `column ${name} is gone`)];
}
