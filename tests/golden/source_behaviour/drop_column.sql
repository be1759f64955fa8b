-- replicate shrinks
-- setup
CREATE TABLE shrinks (a int, id int PRIMARY KEY, b text, c text, d text);
INSERT INTO shrinks SELECT g, g, 'b', 'c', 'd' FROM generate_series(1, 50) g;
-- workload
UPDATE shrinks SET b = 'changed' WHERE id < 5;

ALTER TABLE shrinks DROP COLUMN a;

UPDATE shrinks SET c = 'changed' WHERE id = 7;
INSERT INTO shrinks VALUES (100, 'b', 'c', 'd');
-- wait
BEGIN;
UPDATE shrinks SET d = 'in transaction, before' WHERE id = 8;
ALTER TABLE shrinks DROP COLUMN b, DROP COLUMN c;
INSERT INTO shrinks VALUES (101, 'in transaction, after');
COMMIT;
-- wait
ALTER TABLE shrinks ADD COLUMN b int;
UPDATE shrinks SET b = id;
