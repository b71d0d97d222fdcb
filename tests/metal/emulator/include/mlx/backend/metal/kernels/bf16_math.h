// In place of MLX's header of this name: functions of bfloat, which no matrix product uses.
#pragma once
