-- The table's schema gets another name: the table itself is not touched.
-- replicate table_schema_old.t
-- setup
CREATE SCHEMA table_schema_old;
CREATE TABLE table_schema_old.t (id int PRIMARY KEY, v text);
INSERT INTO table_schema_old.t VALUES (1, 'one');
-- workload
ALTER SCHEMA table_schema_old RENAME TO table_schema_new;
-- wait
INSERT INTO table_schema_new.t VALUES (2, 'two');
-- expected table_schema_old.t: live
--   id | v
--   1  | one
--   2  | two
-- history table_schema_old.t:
--   renamed to table_schema_new.t
