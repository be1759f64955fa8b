-- The key is dropped and made anew over other columns, wider, and in another order, with rows in between.
-- replicate moved
-- replicate wider
-- setup
CREATE TABLE moved (a int PRIMARY KEY, b int NOT NULL, c int);
CREATE TABLE wider (a int PRIMARY KEY, b int NOT NULL, c int);
INSERT INTO moved VALUES (1, 22, 3), (2, 33, 4);
INSERT INTO wider VALUES (1, 22, 3), (2, 33, 4);
-- workload
UPDATE moved SET b = b * 2, c = c * 3;
UPDATE wider SET b = b * 2, c = c * 3;
-- session compare
with the first key
-- session a
ALTER TABLE moved DROP CONSTRAINT moved_pkey;
ALTER TABLE moved ADD PRIMARY KEY (b);
ALTER TABLE wider DROP CONSTRAINT wider_pkey;
ALTER TABLE wider ADD PRIMARY KEY (a, b);
-- wait
INSERT INTO moved VALUES (3, 55, 6);
UPDATE moved SET b = b * 2, c = c * 3;
INSERT INTO wider VALUES (3, 55, 6);
UPDATE wider SET b = b * 2, c = c * 3;
-- wait
ALTER TABLE wider DROP CONSTRAINT wider_pkey;
INSERT INTO wider VALUES (4, 77, 8);
ALTER TABLE wider ADD PRIMARY KEY (b, a);
UPDATE wider SET b = b * 2, c = c * 3;
DELETE FROM wider WHERE a = 1;
